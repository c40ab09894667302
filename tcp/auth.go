package tcp

// auth signs and verifies the segments of one connection.
type auth struct{}
