#!/usr/bin/env -S node --no-warnings
// SPDX-License-Identifier: Apache-2.0
// Runs a WebAssembly program: tests/run_wasm.mjs PROGRAM.wasm [ARGUMENTS]
import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";
import { WASI } from "node:wasi";

const wasi = new WASI({ version: "preview1", args: argv.slice(2), returnOnExit: true });
const module = await WebAssembly.compile(await readFile(argv[2]));
exit(wasi.start(await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi.wasiImport })));
