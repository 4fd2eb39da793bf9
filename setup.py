"""Only what pyproject.toml cannot say: the C core is built by cffi from csrc/."""

from setuptools import setup

setup(cffi_modules=["csrc/build_core.py:ffi"])
