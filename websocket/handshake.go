package websocket

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"strings"
)

// AcceptKey returns Sec-WebSocket-Accept for a Sec-WebSocket-Key (RFC 6455 4.2.2).
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// hasToken reports whether a header with lists of tokens has one, whatever its case.
func hasToken(h http.Header, name, token string) bool {
	for _, v := range h.Values(name) {
		for _, t := range strings.Split(v, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// tokens returns the elements of a header with lists of tokens, in order.
func tokens(h http.Header, name string) (list []string) {
	for _, v := range h.Values(name) {
		for _, t := range strings.Split(v, ",") {
			if t = strings.Trim(t, " \t"); t != "" {
				list = append(list, t)
			}
		}
	}
	return list
}

// NewKey returns a random Sec-WebSocket-Key (RFC 6455 4.1). A gateway needs one where a client of HTTP/2 or HTTP/3, which sends
// none, is connected to a server of HTTP/1.1.
func NewKey() string {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return base64.StdEncoding.EncodeToString(nonce[:])
}
