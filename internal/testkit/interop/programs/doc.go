// Package programs runs unmodified programs, and the test suites that some of them have, on the stack by way of
// millrace exec (package shim). Each runs on the kernel's stack first, in the same namespaces: a test of a suite may
// fail on the stack only if it fails on the kernel too, or if the code has the reason in a table.
//
// A test bed is two network namespaces joined by a veth pair: in "host" the stack (AF_XDP on its end of the pair, or
// the kernel's stack), in "peer" the kernel's. `make interop-shim` runs everything and writes docs/shim-programs.md;
// PROGRAM and TIER select a part, whose cells of the page are then replaced. CI only compares the page with the code.
//
// It does not measure speed: bench has suites for that.
package programs
