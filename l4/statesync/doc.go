// Package statesync carries connections from one gateway to another, so that the other can go on with them: over TCP,
// encrypted and authenticated by a shared key. It knows records, not tables; see docs/design/015-state-sync.md.
//
// A gateway dials its peer and sends its own connections; on what the peer dials it receives the peer's. Each stream:
//
//	both       hello    magic, version, 32 random bytes      in the clear
//	both       config   what must agree                      sealed from here on: AES-256-GCM
//	dialer     records, heartbeat (every half a second)
//	listener   echo of each heartbeat
//
// The keys of a stream are derived from the shared key and both random values, and frames are numbered, so nothing that
// was recorded can be sent again. TCP loses nothing while it is connected. When it breaks, or when changes come faster
// than it takes them, all connections are sent again.
package statesync
