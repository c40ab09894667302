package gateway

// owner returns the loop that the connections of a client's address and port belong to, of n: a
// pure function, so that any loop, and any packet that names the client, tells the same. Both
// directions of a connection are handled there.
func owner(client addr, port uint16, n int) int {
	return int(selection.sum(client, uint64(port)) >> 32 * uint64(n) >> 32)
}

// loopOf returns the loop that a port of the range belongs to; see loop.
func (r PortRange) loopOf(port uint16, n int) int {
	return min(int(port-r.First)/(r.Size()/n), n-1)
}
