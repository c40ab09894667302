// Package socket gives programs the host of a stack as they know one: net.Conn, net.Listener,
// net.PacketConn, and beside them a Poller for many sockets, callbacks on the loop, and bytes that are
// read and written without copying.
//
//	s, err := socket.New(socket.Config{Loops: loops, Addrs: addrs})
//	c, err := s.DialContext(ctx, "tcp", "198.18.0.2:80")
//	l, err := s.Listen("tcp", ":80")
//	p, err := s.ListenPacket("udp", ":443")
//
// A call of a socket's method enters its loop (host.Host.Enter), does there what it is for, and leaves.
// A goroutine that has to wait leaves its buffer behind: the loop fills or empties it at the end of a
// burst (Owner.Ready) and wakes the goroutine once, when its call is complete. There is no goroutine
// per connection, and no buffer of ours.
//
// # Callbacks
//
// What runs on a loop (TCPConn.OnReady, TCPConn.Do, the function given to Peek, done of WriteZeroCopy) holds
// it already. It may use the Inner that it is given, and must neither block nor call methods of sockets,
// which would wait for the loop for ever.
//
// # What differs from the kernel's sockets
//
// Names are resolved only where Config.Resolver does. There are no file descriptors; SyscallConn of a
// UDPConn says what it is. Nagle's algorithm is off by default, as package net has it.
package socket
