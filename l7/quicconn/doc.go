// Package quicconn is QUIC connections driven by one event loop.
//
// Package quic has goroutines: they read and write packets, and block in reads of streams. Here they bring what they
// have read to the loop, in batches, and the loop handles connections and streams without locks or waiting, as it does
// those of package transport:
//
//	quic.Stream.Read -> chunk of the stream -> Hub -> Loop.Do -> Handler.Readable, Stream.Input
//	Stream.Write -> quic.Stream.TryWrite, or a goroutine that may wait -> quic.Stream.Write
//
// Memory is bounded for each stream. A reader that has filled one chunk which the loop has not taken stops reading, and
// QUIC's flow control stops the peer. What cannot be sent is held up to MaxHeld, or less if the connection's streams hold much
// together, and Stream.Room says how much more the loop may write. A peer that takes nothing for Conn.SetWriteTimeout has its
// stream reset, so that what is held for it does not stay.
//
// It knows nothing of HTTP. Connections stay with one loop for their lives.
package quicconn
