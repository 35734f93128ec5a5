#!/bin/sh
# archive.sh CORE ARCHIVE FOLDER CC... - makes ARCHIVE from the objects of CORE, with no global symbol but hf_*.
# They become one object, because a symbol that is local could not be found by another one.
set -e
core=$1 archive=$2 folder=$3
shift 3
mkdir -p "$folder"
"$@" -nostdlib -r -Wl,--whole-archive "$core" -o "$folder/holdfast.o"
objcopy --wildcard --keep-global-symbol='hf_*' "$folder/holdfast.o"
rm -f "$archive"
ar rcsD "$archive" "$folder/holdfast.o"
