"""Looks up functions of libibverbs with ctypes, as names.c does: names_ctypes.py LIST."""
import ctypes
import os
import sys


class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]


library, process = ctypes.CDLL("libibverbs.so.1"), ctypes.CDLL(None)
process.dlvsym.restype = ctypes.c_void_p
process.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
process.dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def file_of(function):
    info = Info()
    if not function or not process.dladdr(function, ctypes.byref(info)):
        return "none"
    return os.path.basename(info.file.decode())


def default(name):
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


for line in open(sys.argv[1]):
    name, version = line.split()
    print(name, version, file_of(process.dlvsym(library._handle, name.encode(), version.encode())))
    print(name, "default", file_of(default(name)))
