package inspect

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/millrace/millrace/filter/initial"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/tls/clienthello"
)

// quicFlow is the first datagrams of a client of QUIC, up to its ClientHello.
type quicFlow struct {
	hello   initial.Collector
	version uint32 // of the last one that was evaluated
	done    bool
}

// isQUIC reports whether a datagram begins with an Initial packet that can be read, or with a hello of Google's QUIC, which is not
// encrypted.
func isQUIC(b []byte) bool {
	version, ok := initial.Version(b)
	return ok && b[0]&0x40 != 0 && (initial.Known(version) || isGoogleQUIC(version) && bytes.Contains(b[:min(len(b), maxGoogleHeader)], googleHello))
}

// isGoogleQUIC reports whether a version is Q046 or one before it.
func isGoogleQUIC(version uint32) bool { return version>>8 == 0x513034 && version <= 0x51303436 }

var googleHello = []byte("CHLO")

// maxGoogleHeader is where a hello of Google's QUIC begins at most.
const maxGoogleHeader = 100

// quic reads a datagram.
func (e *Engine) quic(p *packet, b []byte) {
	q := p.flow.proto.quic
	version, ok := initial.Version(b)
	if !ok || p.dir == signature.ToClient || q.done {
		return
	}
	if isGoogleQUIC(version) {
		e.googleQUIC(p, b)
		return
	}
	if version != q.version { // again behind a Version Negotiation (RFC 9000 6.2)
		q.version, q.hello = version, initial.Collector{}
	}
	if !q.hello.Datagram(b) {
		return
	}
	message, more := q.hello.Hello()
	if message == nil && more {
		return
	}
	e.tx.reset(signature.AppQUIC)
	e.tx.put(signature.QUICVersion, bytes.Clone(b[1:5]))
	e.tx.text = b
	if message != nil {
		e.quicHello(message)
	}
	q.hello.Done()
	q.done = true
	e.transact(p)
}

// quicHello fills the buffers of a ClientHello.
func (e *Engine) quicHello(m []byte) {
	if name, _, _ := bytes.Cut(clienthello.SentServerName(m[4:]), []byte{0}); len(name) > 0 {
		e.tx.put(signature.QUICSNI, bytes.Clone(name))
	}
	var h clienthello.Hello
	if clienthello.ParseMessage(m, &h) != nil {
		return
	}
	text := h.AppendJA3Text(nil)
	hash := md5.Sum(text)
	e.tx.put(signature.JA3String, text)
	e.tx.put(signature.JA3Hash, []byte(hex.EncodeToString(hash[:])))
	e.tx.put(signature.JA4Hash, h.AppendJA4(nil, 'q'))
}

// quicFinish evaluates a client whose ClientHello was not whole: its version is known.
func (e *Engine) quicFinish(f *flow) {
	q := f.proto.quic
	if q.done || q.version == 0 {
		return
	}
	q.done = true
	e.tx.reset(signature.AppQUIC)
	e.tx.put(signature.QUICVersion, binary.BigEndian.AppendUint32(nil, q.version))
	e.transact(packetOf(f, signature.ToServer))
}

// maxGoogleTags bounds the tags of a hello that are read.
const maxGoogleTags = 64

// googleQUIC reads a hello of Google's QUIC before version 50: a table of tags with the ends of their values, and these.
//
//	| "CHLO" | number 16 | 0 16 | (tag 32, end 32) ... | values |
func (e *Engine) googleQUIC(p *packet, b []byte) {
	at := bytes.Index(b[:min(len(b), maxGoogleHeader)], googleHello)
	if at < 0 {
		return
	}
	t := &e.tx
	t.reset(signature.AppQUIC)
	t.text = b
	t.put(signature.QUICVersion, b[1:5])
	l := little{b[at+4:]}
	n := min(int(l.uint16(0)), maxGoogleTags)
	values := 4 + 8*n
	var tags []string
	begin := 0
	for i := range n {
		tag := l.at(4+8*i, 4)
		end := int(l.uint32(4 + 8*i + 4))
		if len(tag) < 4 || end < begin {
			break
		}
		value := l.at(values+begin, end-begin)
		name := strings.TrimRight(string(tag), "\x00\xff")
		switch name {
		case "SNI":
			t.put(signature.QUICSNI, value)
		case "UAID":
			t.put(signature.QUICUserAgent, value)
		}
		tags, begin = append(tags, name), end
	}
	text := strings.TrimLeft(string(b[2:5]), "0") + "," + strings.Join(tags, "-")
	hash := md5.Sum([]byte(text))
	t.put(signature.QUICCyuString, []byte(text))
	t.put(signature.QUICCyuHash, []byte(hex.EncodeToString(hash[:])))
	p.flow.proto.quic.done = true
	e.transact(p)
}

// size returns how many bytes the parser holds.
func (q *quicFlow) size() int { return quicSize + q.hello.Size() }

const quicSize = 160
