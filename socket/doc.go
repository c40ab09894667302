// Package socket implements the interfaces of package net over the TCP/IP stack of this process: net.Conn,
// net.Listener and net.PacketConn. Programs over package net, such as net/http and crypto/tls, run on it
// unchanged.
//
//	c, err := stack.DialContext(ctx, "tcp", "198.18.0.2:80")
//	l, err := stack.Listen("tcp", ":80")
//	p, err := stack.ListenPacket("udp", ":443")
//
// Beyond package net there are a Poller for many sockets, callbacks on the loop (OnReady), reads and writes
// without copies (Peek, WriteZeroCopy), and batches of datagrams (ReadMessages, ReadBatch).
//
// # Loops
//
// The stack has one loop per receive queue of its devices. A call enters the loop of its socket (it takes
// the loop's lock), works on the connection there, and leaves. A goroutine that has to wait parks its buffer
// with the connection. The loop fills or empties the buffer at the end of a burst and wakes the goroutine
// once, when its call is complete. There is no goroutine per connection and no intermediate buffer.
//
// A loop is a goroutine that shares the processors of the program (GOMAXPROCS) with goroutines that compute,
// and keeps its pace beside them. If round trips must not wait for a time slice of those either, set
// ExtraProcessor: in stack.Config, in node.Config (millrace.OpenConfig.Node), as extra_processor in the files
// of millrace stack and gateway, or by their flag --extra-processor.
//
// # Callbacks
//
// Functions that are called on a loop (by OnReady, OnAccept, Do and Peek, and done of WriteZeroCopy) hold its
// lock. They use the LoopConn or LoopUDPConn that they receive. They must not block, and must not call
// methods of sockets, which would wait for the same lock forever. Stack.LoopOf is the Stack for them: they
// connect (LoopStack.Connect), and watch files of the kernel (LoopStack.Watch), without a goroutine.
//
// # Differences from package net
//
// Sockets have no file descriptor, and no method File; SyscallConn gives a kernel socket for options alone.
// Names are resolved over sockets of the stack, so that a server on a loopback address of the kernel, such as
// 127.0.0.53, does not answer: see Config.NameServers. Close of a Stack resets connections: see Shutdown.
// A stack reaches its own addresses, 127.0.0.0/8 and ::1 within itself: no device and no kernel sees that, and
// what listens on a loopback address of the kernel is another host's.
// Defaults are those of package net: Nagle's algorithm is off, and keepalive probes are sent after 15 s.
package socket
