# The C core as cffi builds it. What it holds is told by csrc/ottermq.h, and only there; a checker
# can't look into C structs, so wal/ gives them types where they come in.
from typing import Any

ffi: Any
lib: Any
