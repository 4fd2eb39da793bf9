# The C core as cffi builds it: what `lib` holds is told by csrc/ottermq.h, not twice.
from typing import Any

from cffi import FFI

ffi: FFI
lib: Any
