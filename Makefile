# The front door. Everything is built by Meson and Ninja in $(BUILD).
BUILD ?= build
.PHONY: all
all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD)
