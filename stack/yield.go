package stack

import (
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// yield lets the goroutines run that wait for this processor (the runtime's P), and continues after
// them. The loop has made most of them ready itself, so they run where its caches are.
//
// runtime.Gosched puts the caller behind all goroutines of the process instead, on whichever processor
// is next. Computing goroutines are there too, each for a time slice of 10 ms. With a second loop,
// loops and the goroutines of their connections moved between cores with each iteration: 2.2 us of CPU
// time for a round trip, and 1.5 with yield.
//
// The runtime itself still takes a goroutine from the common queue first in every 61st switch, so that
// a loop that is always busy does not keep its processor to itself.
//
// goyield has no exported name. The runtime keeps its name and type for packages that link to it
// (go.dev/issue/67401).
func yield() { goyield() }

//go:linkname goyield runtime.goyield
func goyield()

// offerCPU lets other threads run that the kernel has on this CPU, and returns at once where there are none. A loop calls
// it after an iteration in vain, unless it sleeps. A program that the loop has just woken, with the bytes of a packet, is often on the
// same CPU: the kernel does not take the CPU from the loop for it, and the loop would spin for as long as it may before
// the program runs. The runtime does not learn of the call, because the thread does not sleep.
func offerCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
