"""Only what pyproject.toml cannot say: cffi builds the C core from csrc/, against the stable ABI of
Python, so that one wheel serves 3.11 and all that come after it."""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent / "csrc"))
import build_objects  # noqa: E402  (csrc is not a package: it is reached by path)


class BuildCore(build_ext):
    """A checkout keeps the symbols, for gdb and perf; a wheel doesn't carry them."""

    def build_extension(self, ext: Extension) -> None:
        in_checkout = self.inplace or self.editable_mode
        if not in_checkout and not os.environ.get("OTTERMQ_SANITIZE"):
            ext.extra_link_args.append("-Wl,--strip-all")
        ext.extra_objects = [str(made) for made in build_objects.build()]
        super().build_extension(ext)


# A Python without the GIL has no stable ABI before 3.15: cffi builds for that one version then.
stable = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    cffi_modules=["csrc/build_core.py:ffi"],
    cmdclass={"build_ext": BuildCore},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable else {},
)
