package webpeer

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// MaxContent is the length of the largest response.
const MaxContent = 1 << 20

// content is what every response begins with. Its period is longer than any buffer of a proxy.
var content = func() []byte {
	p := make([]byte, MaxContent)
	x := uint32(1)
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}()

// Content returns a response of so many bytes, for a backend of somebody else. It is not for writing to.
func Content(size int) []byte { return content[:size:size] }

// CheckContent compares a part of a response with what it must be.
func CheckContent(at, size int, p []byte) error {
	if at+len(p) > size {
		return fmt.Errorf("a response of more than %d bytes", size)
	}
	if !bytes.Equal(p, content[at:at+len(p)]) {
		return fmt.Errorf("wrong content in the %d bytes from %d", len(p), at)
	}
	return nil
}

// Paths of the backend.
const (
	bytesPath     = "/bytes/" // and the length of the response; anything may stand before
	webSocketPath = "/ws"
	grpcPath      = "/bench.Echo/Unary"
)

// BytesPath is the path of a response with so many bytes.
func BytesPath(size int) string { return bytesPath + strconv.Itoa(size) }

// sizeOf returns the length that a path asks for.
func sizeOf(path string) (int, bool) {
	i := strings.LastIndex(path, bytesPath)
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(path[i+len(bytesPath):])
	return n, err == nil && n >= 0 && n <= MaxContent
}

const messageBytes = 64 // of a WebSocket message, and of a message of gRPC

// grpcMessage is a message of gRPC: not compressed, its length, its bytes.
var grpcMessage = append([]byte{0, 0, 0, 0, messageBytes}, content[:messageBytes]...)

// clientFrame and serverFrame are the two directions of an echo: binary, final, and from the client masked (RFC 6455 5.2).
var clientFrame, serverFrame = func() (masked, plain []byte) {
	mask := [4]byte{0x5a, 0x17, 0xc3, 0x2b}
	masked = append([]byte{0x82, 0x80 | messageBytes}, mask[:]...)
	for i, b := range content[:messageBytes] {
		masked = append(masked, b^mask[i%4])
	}
	return masked, append([]byte{0x82, messageBytes}, content[:messageBytes]...)
}()
