package service

import (
	"io"
	"math/rand/v2"
	"time"
)

// chunk is the size of the services' reads and writes.
const chunk = 64 << 10

// echo is RFC 862 over TCP.
func echo(c *conn) {
	buf := make([]byte, chunk)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, werr := c.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				_ = c.CloseWrite() // what is still on its way gets there
			}
			return
		}
	}
}

// echoDatagram is RFC 862 over UDP.
func echoDatagram(to, request []byte) []byte { return append(to, request...) }

// discard is RFC 863 over TCP.
func discard(c *conn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// discardDatagram is RFC 863 over UDP.
func discardDatagram(_, _ []byte) []byte { return nil }

// chargenLine and chargenSet are the customary pattern of RFC 864: lines of 72 of the 95 printable characters,
// each begins one further than the one before.
const (
	chargenLine = 72
	chargenSet  = 95
)

// chargenPattern is all different lines of the pattern, after which it begins again.
var chargenPattern = func() (b []byte) {
	for line := range chargenSet {
		for i := range chargenLine {
			b = append(b, ' '+byte((line+i)%chargenSet))
		}
		b = append(b, '\r', '\n')
	}
	return b
}()

// chargen is RFC 864 over TCP: characters until the client closes; what it sends is thrown away.
func chargen(c *conn) {
	go func() {
		discard(c)
		c.Conn.Close() // ends the Write below
	}()
	for {
		if _, err := c.Write(chargenPattern); err != nil {
			return
		}
	}
}

// chargenMost is the longest answer of chargen over UDP (RFC 864).
const chargenMost = 512

// amplify bounds an answer as a multiple of its request: an attacker who forges a source address must not
// gain by it (the rule is RFC 9000 8.1's).
const amplify = 3

// chargenDatagram is RFC 864 over UDP: some characters, whatever the request.
func chargenDatagram(to, request []byte) []byte {
	most := min(chargenMost, amplify*len(request))
	if most == 0 {
		return to[:0:cap(to)] // an empty answer to an empty request
	}
	return append(to, chargenPattern[:1+rand.IntN(most)]...)
}

// daytime is RFC 867 over TCP.
func daytime(c *conn) {
	if _, err := c.Write(now()); err == nil {
		c.finish()
	}
}

// daytimeDatagram is RFC 867 over UDP. The line is longer than an empty request, and short all the same.
func daytimeDatagram(to, _ []byte) []byte { return append(to, now()...) }

// now is the line of daytime: the form is free.
func now() []byte { return []byte(time.Now().UTC().Format(time.RFC1123) + "\r\n") }
