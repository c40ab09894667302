package role

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/tls/clienthello"
)

// openTLSPeek plays the contestants of tls-peek over the hellos in the file of its argument.
func openTLSPeek(o roleOptions) (roleWork, error) {
	p, err := newPeeks(o.args)
	if err != nil {
		return roleWork{}, err
	}
	step, ok := map[string]func() error{"ja4": p.ja4, "records": p.records, "peek": p.peek, "crypto/tls": p.cryptoTLS}[o.as]
	if !ok {
		return roleWork{}, fmt.Errorf("no contestant %q", o.as)
	}
	if err := step(); err != nil {
		return roleWork{}, err
	}
	allocs := testing.AllocsPerRun(100, func() { _ = step() }) / float64(len(p.whole))
	return roleWork{
		version: runtime.Version(),
		step: func() error {
			err := step()
			p.shown.Add(uint64(len(p.whole)))
			return err
		},
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"hellos": p.shown.Load(), "allocs": uint64(allocs)}, nil
		},
	}, nil
}

// peeks are the first bytes of connections, as one record and as three.
type peeks struct {
	whole, cut [][]byte
	peeker     clienthello.Peeker
	ja4Text    [36]byte
	shown      atomic.Uint64
}

func newPeeks(args []string) (*peeks, error) {
	if len(args) != 1 {
		return nil, errors.New("which file of hellos?")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var vectors []struct{ Hello string }
	if err := json.Unmarshal(b, &vectors); err != nil {
		return nil, err
	}
	p := &peeks{}
	for _, v := range vectors {
		raw, err := hex.DecodeString(v.Hello)
		if err != nil {
			return nil, err
		}
		p.whole = append(p.whole, raw)
		p.cut = append(p.cut, inThree(raw))
	}
	if len(p.whole) == 0 {
		return nil, errors.New("no hellos")
	}
	return p, nil
}

// inThree cuts the message of a record into three records.
func inThree(record []byte) (b []byte) {
	message := record[5:]
	size := len(message)/3 + 1
	for len(message) > 0 {
		n := min(size, len(message))
		b = append(b, record[:3]...)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b, message = append(b, message[:n]...), message[n:]
	}
	return b
}

func (p *peeks) ja4() error     { return p.each(p.whole, true) }
func (p *peeks) records() error { return p.each(p.cut, true) }
func (p *peeks) peek() error    { return p.each(p.whole, false) }

func (p *peeks) each(hellos [][]byte, fingerprint bool) error {
	for _, b := range hellos {
		p.peeker.Reset()
		h, err := p.peeker.Parse(b)
		if err != nil {
			return err
		}
		if fingerprint {
			h.AppendJA4(p.ja4Text[:0], 't')
		}
	}
	return nil
}

var errSeen = errors.New("seen")

// cryptoTLS has crypto/tls parse the hello, and ends the handshake in GetConfigForClient.
func (p *peeks) cryptoTLS() error {
	for _, b := range p.whole {
		seen := false
		config := &tls.Config{MinVersion: tls.VersionTLS10, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			seen = true
			return nil, errSeen
		}}
		if err := tls.Server(sentConn{r: bytes.NewReader(b)}, config).Handshake(); !seen {
			return err
		}
	}
	return nil
}

// sentConn is a connection whose peer has sent some bytes and reads nothing.
type sentConn struct {
	net.Conn
	r io.Reader
}

func (c sentConn) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c sentConn) Write(b []byte) (int, error) { return len(b), nil }
