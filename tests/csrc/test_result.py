"""om_result_text: every result has words of its own."""

from tests.internals import ffi, lib

GOOD = ("OM_OK", "OM_END", "OM_DUPLICATE")
NAMED = [name for name in dir(lib) if name.startswith("OM_E_") or name in GOOD]


def text(result: int) -> str:
    words: bytes = ffi.string(lib.om_result_text(result))
    return words.decode()


def test_every_result_has_words_of_its_own() -> None:
    assert len(NAMED) >= 26
    texts = {text(getattr(lib, name)) for name in NAMED}
    assert len(texts) == len(NAMED)
    assert "unknown result" not in texts


def test_a_number_that_is_no_result_still_gets_an_answer() -> None:
    assert text(-9999) == "unknown result"
    assert text(4096) == "ok"
