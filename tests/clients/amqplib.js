// amqplib (Node): each scenario ends with exit code 0 or says what went wrong.
// node amqplib.js URL SCENARIO, with amqplib found by NODE_PATH
'use strict'
const assert = require('node:assert')
const path = require('node:path')
const amqp = require('amqplib')
// Not among what it exports; by its place it can be had.
const defs = require(path.join(path.dirname(require.resolve('amqplib')), 'lib', 'defs.js'))

const [url, scenario] = process.argv.slice(2)
const PATIENCE = 20000

async function mustGet (channel, queue, options = { noAck: true }) {
  const limit = Date.now() + PATIENCE
  while (Date.now() < limit) {
    const message = await channel.get(queue, options)
    if (message) return message
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  assert.fail(`nothing came to ${queue}`)
}

const declare = async (channel, args = {}) =>
  (await channel.assertQueue('', { exclusive: true, arguments: args })).queue

const scenarios = {
  async publishAndConsume (connection) {
    const channel = await connection.createChannel()
    const queue = await declare(channel)
    await channel.prefetch(10)
    const got = []
    const all = new Promise((resolve) => {
      channel.consume(queue, (message) => {
        got.push(message.content.toString())
        channel.ack(message)
        if (got.length === 50) resolve()
      })
    })
    for (let n = 0; n < 50; n++) channel.sendToQueue(queue, Buffer.from(String(n)))
    await all
    assert.deepStrictEqual(got, [...Array(50).keys()].map(String))
  },

  async headers (connection) {
    const channel = await connection.createChannel()
    const queue = await declare(channel)
    const headers = { text: 'ä', number: 42, deep: { list: [1, 'two', { three: true }] } }
    channel.sendToQueue(queue, Buffer.from('x'), { headers, messageId: 'm', persistent: true })
    const message = await mustGet(channel, queue)
    assert.deepStrictEqual(message.properties.headers, headers)
    assert.strictEqual(message.properties.messageId, 'm')
    assert.strictEqual(message.properties.deliveryMode, 2)
  },

  async confirm (connection) {
    const channel = await connection.createConfirmChannel()
    const queue = await declare(channel, { 'x-max-length': 1, 'x-overflow': 'reject-publish' })
    channel.sendToQueue(queue, Buffer.from('fits'))
    await channel.waitForConfirms()
    await assert.rejects(new Promise((resolve, reject) => {
      channel.sendToQueue(queue, Buffer.from('does not'), {}, (no) => no ? reject(no) : resolve())
    }))
  },

  async returned (connection) {
    const channel = await connection.createConfirmChannel()
    const back = new Promise((resolve) => channel.on('return', resolve))
    channel.publish('', 'nobody', Buffer.from('back'), { mandatory: true })
    const message = await back
    assert.strictEqual(message.fields.replyCode, 312)
    assert.strictEqual(message.content.toString(), 'back')
    await channel.waitForConfirms()
  },

  async nackAndRequeue (connection) {
    const channel = await connection.createChannel()
    const queue = await declare(channel)
    channel.sendToQueue(queue, Buffer.from('x'))
    const first = await mustGet(channel, queue, {})
    assert.strictEqual(first.fields.redelivered, false)
    channel.nack(first, false, true)
    const again = await mustGet(channel, queue, {})
    assert.strictEqual(again.fields.redelivered, true)
    channel.reject(again, false)
    assert.strictEqual((await channel.checkQueue(queue)).messageCount, 0)
  },

  async priority (connection) {
    const channel = await connection.createConfirmChannel()
    const queue = await declare(channel, { 'x-max-priority': 5 })
    for (const priority of [1, 5, 3]) {
      channel.sendToQueue(queue, Buffer.from(String(priority)), { priority })
    }
    await channel.waitForConfirms()
    const got = []
    for (let n = 0; n < 3; n++) got.push((await mustGet(channel, queue)).content.toString())
    assert.deepStrictEqual(got, ['5', '3', '1'])
  },

  async deadLetters (connection) {
    const channel = await connection.createChannel()
    const grave = await declare(channel)
    const queue = await declare(channel,
      { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': grave })
    channel.sendToQueue(queue, Buffer.from('x'), { expiration: '30' })
    const dead = await mustGet(channel, grave)
    const [death] = dead.properties.headers['x-death']
    assert.strictEqual(death.reason, 'expired')
    assert.strictEqual(death.queue, queue)
    assert.strictEqual(death.count, 1)
    assert.strictEqual(death['original-expiration'], '30')
  },

  // amqplib has no words for transactions of its own, but sends what it is told to.
  async tx (connection) {
    const channel = await connection.createChannel()
    const other = await connection.createChannel()
    const queue = await declare(other)
    await channel.rpc(defs.TxSelect, {}, defs.TxSelectOk)
    channel.sendToQueue(queue, Buffer.from('no'))
    await channel.rpc(defs.TxRollback, {}, defs.TxRollbackOk)
    channel.sendToQueue(queue, Buffer.from('yes'))
    await channel.checkQueue(queue)
    assert.strictEqual(await other.get(queue), false)
    await channel.rpc(defs.TxCommit, {}, defs.TxCommitOk)
    assert.strictEqual((await mustGet(other, queue)).content.toString(), 'yes')
  },

  async errors (connection) {
    const channel = await connection.createChannel()
    const told = new Promise((resolve) => channel.on('error', resolve))
    await assert.rejects(channel.checkQueue('no-such'), /404.*no queue 'no-such' in vhost '\/'/)
    assert.strictEqual((await told).code, 404)
    await (await connection.createChannel()).close()
  },

  async cancelled (connection) {
    const channel = await connection.createChannel()
    const queue = await declare(channel)
    const cancelled = new Promise((resolve) => {
      channel.consume(queue, (message) => { if (message === null) resolve() })
    })
    await channel.checkQueue(queue)
    await channel.deleteQueue(queue)
    await cancelled
  },

  // The test cuts the wire when it reads "cut".
  async reconnect (connection) {
    const name = `lasting-${process.pid}-${Date.now()}`
    const channel = await connection.createConfirmChannel()
    await channel.assertQueue(name, { durable: true })
    channel.sendToQueue(name, Buffer.from('x'), { persistent: true })
    await channel.waitForConfirms()
    await mustGet(channel, name, {})
    connection.on('error', () => {})
    const lost = new Promise((resolve) => connection.on('close', resolve))
    console.log('cut')
    await lost
    const again = await amqp.connect(url)
    const second = await again.createChannel()
    const message = await mustGet(second, name)
    assert.strictEqual(message.fields.redelivered, true)
    await second.deleteQueue(name)
    await again.close()
    process.exit(0)
  }
}

async function main () {
  if (scenario === 'list') return console.log(Object.keys(scenarios).join('\n'))
  const connection = await amqp.connect(url)
  await scenarios[scenario](connection)
  await connection.close()
}

setTimeout(() => { console.error('timed out'); process.exit(2) }, PATIENCE + 5000).unref()
main().catch((no) => { console.error(no); process.exit(1) })
