// Scenarios of kafkajs: node kafkajs.js HOST:PORT SCENARIO TOPIC
const assert = require('assert');
const { Kafka, CompressionTypes, logLevel } = require('kafkajs');

const [address, scenario, topic] = process.argv.slice(2);
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1';
const kafka = new Kafka({ clientId: 'ottermq-test', brokers: [address], logLevel: logLevel.ERROR });

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try { return await work(admin); } finally { await admin.disconnect(); }
}

async function send(messages, options = {}) {
  const producer = kafka.producer();
  await producer.connect();
  try { return await producer.send({ topic, messages, ...options }); } finally { await producer.disconnect(); }
}

// All records from the beginning, by a group of its own.
async function read(count, groupId = `${topic}-readers`) {
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const found = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({ eachMessage: async ({ partition, message }) => {
      found.push({ partition, ...message });
      if (found.length === count) resolve();
    } });
  });
  await consumer.disconnect();
  return found;
}

const scenarios = {
  async admin() {
    await withAdmin(async (admin) => {
      assert(await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] }));
      assert((await admin.listTopics()).includes(topic));
      const { topics: [found] } = await admin.fetchTopicMetadata({ topics: [topic] });
      assert.equal(found.partitions.length, 3);
      await send([{ key: 'a', value: 'one', partition: 1 }]);
      const offsets = await admin.fetchTopicOffsets(topic);
      assert.deepEqual(offsets.map((each) => each.offset), ['0', '1', '0']);
      await admin.deleteTopics({ topics: [topic] });
      assert(!(await admin.listTopics()).includes(topic));
    });
  },

  async acks() {
    await withAdmin((admin) => admin.createTopics({ topics: [{ topic }] }));
    for (const [n, acks] of [[0, -1], [1, 1], [2, 0]]) await send([{ value: `${n}` }], { acks });
    const compression = CompressionTypes.GZIP;
    const [told] = await send([{ value: '3' }, { value: '4' }], { compression });
    assert.equal(told.baseOffset, '3');
  },

  async group() {
    await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 2 }] }));
    const sent = [...Array(20).keys()].map((n) => ({ key: `${n}`, value: `value ${n}`, headers: { n: `${n}` } }));
    await send(sent);
    const found = await read(20);
    found.sort((a, b) => Number(a.key) - Number(b.key));
    assert.deepEqual(found.map((each) => `${each.value}`), sent.map((each) => each.value));
    assert.deepEqual(found.map((each) => `${each.headers.n}`), sent.map((each) => each.key));
  },
};

scenarios[scenario]().then(() => console.log('ok'), (error) => { console.error(error); process.exit(1); });
