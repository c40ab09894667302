package webpeer

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
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

// text is what every response of text begins with: lines of JSON that compress about as those of an API do.
var text = func() []byte {
	words := strings.Fields("account address backend certificate client content gateway header listener pool query request response route server")
	var b bytes.Buffer
	for x := uint32(1); b.Len() < MaxContent; {
		fmt.Fprintf(&b, `{"id":%d,"name":"`, x>>12)
		for range 4 {
			x = x*1664525 + 1013904223
			fmt.Fprintf(&b, "%s ", words[x>>24%uint32(len(words))])
		}
		fmt.Fprintf(&b, "\",\"score\":%d.%02d}\n", x>>20, x>>8%100)
	}
	return b.Bytes()[:MaxContent]
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
	textPath      = "/text/"  // the same, of text
	webSocketPath = "/ws"
	grpcPath      = "/bench.Echo/Unary"
)

// BytesPath is the path of a response with so many bytes.
func BytesPath(size int) string { return bytesPath + strconv.Itoa(size) }

// TextPath is the path of a response of so many bytes of text.
func TextPath(size int) string { return textPath + strconv.Itoa(size) }

// sizeOf returns the length that a path asks for behind a prefix.
func sizeOf(path, prefix string) (int, bool) {
	i := strings.LastIndex(path, prefix)
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(path[i+len(prefix):])
	return n, err == nil && n >= 0 && n <= MaxContent
}

// checkText decodes a whole response and compares it with what it must be.
func checkText(coding string, size int, coded []byte) error {
	var r io.Reader
	var err error
	switch in := bytes.NewReader(coded); coding {
	case "gzip":
		r, err = stdgzip.NewReader(in)
	case "br":
		r = brotli.NewReader(in)
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
		}
		r = d
	default:
		err = fmt.Errorf("unknown coding %q", coding)
	}
	if err != nil {
		return err
	}
	got, err := io.ReadAll(io.LimitReader(r, MaxContent+1))
	if err == nil && !bytes.Equal(got, text[:size]) {
		err = fmt.Errorf("%d bytes of %s are %d others than the text of %d", len(coded), coding, len(got), size)
	}
	return err
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
