package tcp

// pathProbe looks for the path MTU by the fate of segments (RFC 4821).
type pathProbe struct{ mtu uint16 }

// pathMTU is the MTU to use where the way's is known to be mtu.
func (c *Conn) pathMTU(mtu int) int { return mtu }

// suspectPath takes a timeout, which may mean that full segments are too long.
func (c *Conn) suspectPath() {}
