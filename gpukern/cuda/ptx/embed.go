// Package ptx has the kernels of the batch engine, which package gpukern/cuda/loader links a program with.
package ptx

import "embed"

// Files are the kernels: NAME.ptx, and NAME.sm_90.ptx for GPUs of that kind.
//
//go:embed *.ptx
var Files embed.FS
