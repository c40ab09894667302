// Package stack moves packets between devices, the offload engine and a handler.
//
//	Driver.Rx -> Engine.Submit ... Engine.Poll -> Handler.Handle -> Driver.Tx | Pool.Put
//
// There is one Loop for each queue of a device. A loop runs each packet to completion and shares
// nothing with other loops but the rings of a Mesh: its devices, pool, engine and handler are its
// own. Loop.Poll is one iteration. Three parts of a loop stand on their own: the Output, by which a
// handler sends; the CommandQueue, by which other goroutines have functions run between two
// iterations; and the LoopLock, by which they take the loop's place for a moment. A loop also polls
// files that are not devices, such as sockets of the kernel (Loop.Watch).
//
// Two runners call Poll again and again, and sleep when there is nothing to do:
//
//   - Loop.Run, on an OS thread of its own, spins and then sleeps in ppoll(2). It suits a process
//     that only moves packets: a forwarder, an L4 gateway.
//   - Loop.Serve, on a goroutine, spins for a time that adapts and then sleeps in the runtime's
//     poller. It suits hosts: goroutines that use sockets enter the loop through its LoopLock and
//     do their work themselves, without a switch to another goroutine.
//
// A loop that serves several handlers has a Dispatcher, which passes each packet to the one that the
// AddressTable names. The table is the one source of the drivers' steering, too (Rules).
//
// The package reads no more of a packet than the addresses, ports and types that claims name. Package
// stack/host is the handler that terminates IP, TCP and UDP.
package stack
