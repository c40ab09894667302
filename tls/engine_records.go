package tls

import (
	"crypto/cipher"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
)

// Content types (RFC 8446 5.1).
const (
	typeChangeCipherSpec = 20
	typeAlert            = 21
	typeHandshake        = 22
	typeData             = 23
)

// Alerts (RFC 8446 6) that the engine sends or interprets.
const (
	alertCloseNotify       tls.AlertError = 0
	alertUnexpectedMessage tls.AlertError = 10
	alertBadRecordMAC      tls.AlertError = 20
	alertRecordOverflow    tls.AlertError = 22
	alertIllegalParameter  tls.AlertError = 47
	alertDecodeError       tls.AlertError = 50
	alertDecryptError      tls.AlertError = 51
	alertProtocolVersion   tls.AlertError = 70
	alertInternalError     tls.AlertError = 80
	alertUserCanceled      tls.AlertError = 90
	alertNoRenegotiation   tls.AlertError = 100
)

const (
	levelWarning, levelFatal = 1, 2

	// maxUseless is the number of empty records that the peer may send without data between, and how many handshake messages (key
	// updates, tickets). Each costs the receiver work. maxWarnings is the same for alerts. Both are BoringSSL's.
	maxUseless  = 32
	maxWarnings = 4
	// maxRecordsPerKey is half of what AES-GCM may protect with one key (RFC 8446 5.5: 2^24.5).
	maxRecordsPerKey = 1 << 23
	// maxMessage is the most bytes of one handshake message after the handshake.
	maxMessage = 1 << 16
)

// protection is the keys of one direction.
type protection struct {
	aead     cipher.AEAD
	secret   []byte // TLS 1.3: of the next keys too
	seq      uint64 // of the next record
	iv       [12]byte
	nonce    [12]byte // scratch: arguments of an interface's method would be allocated
	aad      [13]byte // the same
	version  uint16
	explicit bool // TLS 1.2: 8 bytes of the nonce stand before the ciphertext
}

// setNonce makes the nonce of the next record: the IV, exclusive-or the sequence number on the right
// (RFC 8446 5.3, RFC 7905 2).
func (p *protection) setNonce() {
	p.nonce = p.iv
	tail := p.nonce[4:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^p.seq)
}

// setAAD makes TLS 1.2's additional data: sequence number, type, version, length of the plaintext.
func (p *protection) setAAD(typ byte, size int) []byte {
	a := p.aad[:]
	binary.BigEndian.PutUint64(a, p.seq)
	a[8], a[9], a[10], a[11], a[12] = typ, 3, 3, byte(size>>8), byte(size)
	return a
}

// seal appends a record to dst, which has len(plain)+maxOverhead bytes of capacity left.
func (p *protection) seal(dst []byte, typ byte, plain []byte) []byte {
	if p.version != tls.VersionTLS13 {
		return p.seal12(dst, typ, plain)
	}
	start := len(dst)
	size := len(plain) + 1 + p.aead.Overhead()
	dst = append(dst, typeData, 3, 3, byte(size>>8), byte(size))
	dst = append(append(dst, plain...), typ) // TLSInnerPlaintext (RFC 8446 5.2)
	body := start + recordHeader
	p.setNonce()
	dst = p.aead.Seal(dst[:body], p.nonce[:], dst[body:], dst[start:body])
	p.seq++
	return dst
}

// seal12 is seal before TLS 1.3. The plaintext needs no type behind it and is encrypted from where it lies.
func (p *protection) seal12(dst []byte, typ byte, plain []byte) []byte {
	size := len(plain) + p.aead.Overhead()
	if p.explicit {
		size += 8
	}
	dst = append(dst, typ, 3, 3, byte(size>>8), byte(size))
	p.setNonce()
	if p.explicit { // the sequence number is the explicit part (RFC 5288 3)
		binary.BigEndian.PutUint64(p.nonce[4:], p.seq)
		dst = append(dst, p.nonce[4:]...)
	}
	dst = p.aead.Seal(dst, p.nonce[:], plain, p.setAAD(typ, len(plain)))
	p.seq++
	return dst
}

// open decrypts a whole record in place and returns its content. An error is an alert.
func (p *protection) open(record []byte) (plain []byte, typ byte, err error) {
	if p.version != tls.VersionTLS13 {
		return p.open12(record)
	}
	if record[0] != typeData {
		return nil, 0, alertUnexpectedMessage
	}
	p.setNonce()
	body := record[recordHeader:]
	plain, err = p.aead.Open(body[:0], p.nonce[:], body, record[:recordHeader])
	if err != nil {
		return nil, 0, alertBadRecordMAC
	}
	if len(plain) > maxPlaintext+1 {
		return nil, 0, alertRecordOverflow
	}
	p.seq++
	// The type is the last byte that is not padding (RFC 8446 5.4).
	for i := len(plain) - 1; i >= 0; i-- {
		if plain[i] != 0 {
			return plain[:i], plain[i], nil
		}
	}
	return nil, 0, alertUnexpectedMessage
}

func (p *protection) open12(record []byte) (plain []byte, typ byte, err error) {
	typ, body := record[0], record[recordHeader:]
	p.setNonce()
	if p.explicit {
		if len(body) < 8 {
			return nil, 0, alertBadRecordMAC
		}
		copy(p.nonce[4:], body)
		body = body[8:]
	}
	size := len(body) - p.aead.Overhead()
	if size < 0 {
		return nil, 0, alertBadRecordMAC
	}
	plain, err = p.aead.Open(body[:0], p.nonce[:], body, p.setAAD(typ, size))
	if err != nil {
		return nil, 0, alertBadRecordMAC
	}
	if len(plain) > maxPlaintext {
		return nil, 0, alertRecordOverflow
	}
	p.seq++
	return plain, typ, nil
}

// countSent sets the sequence number to the count of those records in the end of a handshake that are
// protected by these keys. It overwrites them.
func (p *protection) countSent(flight []byte) {
	for len(flight) >= recordHeader {
		size := min(len(flight), recordHeader+int(flight[3])<<8+int(flight[4]))
		_, _, _ = p.open(flight[:size]) // counts where it opens
		flight = flight[size:]
	}
}

// records is the record layer after the handshake, for AEAD cipher suites of TLS 1.2 and 1.3.
type records struct {
	e        *Engine
	suite    *suite
	read     protection
	write    protection
	input    input
	message  []byte // a handshake message that is not complete, nil without one
	standard *ticketReader

	// What came since the last data: empty records, handshake messages, alerts that end nothing.
	empty, messages, warnings int

	replyDue bool // the peer asked for a KeyUpdate
	young    int  // records to come that are smaller than others
}

// next returns the next event of the input.
func (r *records) next(in []byte) (Event, int, error) {
	r.input.drop()
	n := 0
	for {
		record, used, err := r.input.record(in[n:], r.read.version)
		n += used
		if err == nil && record == nil {
			return Event{}, n, nil
		}
		var ev Event
		if err == nil {
			ev, err = r.content(record)
		}
		if err != nil {
			return Event{}, n, r.local(err)
		}
		if ev.Kind != NeedInput {
			return ev, n, nil
		}
		r.input.drop()
	}
}

// local queues the alert that err is, and returns it as crypto/tls words it. Other errors remain.
func (r *records) local(err error) error {
	var a tls.AlertError
	if !errors.As(err, &a) {
		return err
	}
	if _, remote := err.(*net.OpError); remote {
		return err // the peer's alert is not answered
	}
	if !r.e.writeClosed {
		r.alert(a)
	}
	return &net.OpError{Op: "local error", Err: a}
}

// content interprets a record. The zero Event is none.
func (r *records) content(record []byte) (Event, error) {
	plain, typ, err := r.read.open(record)
	if err != nil {
		return Event{}, err
	}
	if typ != typeHandshake && r.message != nil {
		return Event{}, alertUnexpectedMessage // messages are not interleaved with other types (RFC 8446 5.1)
	}
	if typ == typeData && len(plain) > 0 {
		r.empty, r.messages, r.warnings = 0, 0, 0
		return Event{Kind: Data, Data: plain}, nil
	}
	switch typ {
	case typeData:
		return Event{}, countUseless(&r.empty, maxUseless)
	case typeAlert:
		return r.alertReceived(plain)
	case typeHandshake:
		return Event{}, r.handshakeData(plain) // counts messages: they may come in any number of records
	}
	return Event{}, alertUnexpectedMessage
}

// countUseless counts something that is no data.
func countUseless(count *int, limit int) error {
	if *count++; *count > limit {
		return alertUnexpectedMessage
	}
	return nil
}

// alertReceived interprets an alert (RFC 8446 6, RFC 5246 7.2).
func (r *records) alertReceived(p []byte) (Event, error) {
	if len(p) != 2 { // empty (RFC 8446 5.4, RFC 5246 6.2.1), or not exactly one alert (RFC 8446 5.1)
		return Event{}, alertUnexpectedMessage
	}
	level, a := p[0], tls.AlertError(p[1])
	v13 := r.read.version == tls.VersionTLS13
	switch {
	case a == alertCloseNotify:
		return Event{Kind: PeerClosed}, nil
	case v13 && a == alertUserCanceled, !v13 && level == levelWarning:
		return Event{}, countUseless(&r.warnings, maxWarnings)
	case !v13 && level != levelFatal:
		return Event{}, alertIllegalParameter
	}
	return Event{}, &net.OpError{Op: "remote error", Err: a}
}

// alert queues an alert. It exceeds EngineOptions.Output if it must: there is at most one, or two with close_notify.
func (r *records) alert(a tls.AlertError) {
	level := byte(levelFatal)
	if a == alertCloseNotify || a == alertNoRenegotiation {
		level = levelWarning
	}
	r.queue(typeAlert, []byte{level, byte(a)})
}

// queue adds a record to Pending.
func (r *records) queue(typ byte, p []byte) {
	out := &r.e.out
	out.grow(len(p) + maxOverhead)
	out.set(r.write.seal(out.buf, typ, p))
}

// seal appends a record of data to dst.
func (r *records) seal(dst []byte, typ byte, p []byte) []byte {
	r.young = max(0, r.young-1)
	return r.write.seal(dst, typ, p)
}

// The first record of a connection fits in one segment of any path, so that it can be decrypted when that arrives, and
// each further one is one segment larger, up to the full size: as in crypto/tls.
const (
	segment = 1208 // bytes: IPv6's least MTU without headers
	growing = maxPlaintext / (segment - maxOverhead)
)

// recordSize is the most data that the next record should carry, bytes.
func (e *Engine) recordSize() int {
	if e.own == nil || e.own.young == 0 {
		return maxPlaintext
	}
	return (segment - maxOverhead) * (growing + 1 - e.own.young)
}

// input collects a record that arrives in pieces. It holds a buffer only while it has a part of one.
type input struct {
	header [recordHeader]byte
	held   int // bytes of the header
	size   int // of the record with its header, once that is complete
	buf    *[]byte
}

// record returns the next whole record and how many bytes of in were used, nil if there is none yet. It lies
// in in where that has all of it.
func (i *input) record(in []byte, version uint16) (record []byte, used int, err error) {
	if i.held < recordHeader {
		used = copy(i.header[i.held:], in)
		if i.held += used; i.held < recordHeader {
			return nil, used, nil
		}
		if i.size, err = checkHeader(i.header, version); err != nil {
			return nil, used, err
		}
		if used == recordHeader && len(in) >= i.size {
			record = in[:i.size:i.size]
			i.held = 0
			return record, len(record), nil
		}
		i.buf = takeBuffer(i.size)
		*i.buf = append(*i.buf, i.header[:]...)
	}
	n := min(len(in)-used, i.size-len(*i.buf))
	*i.buf = append(*i.buf, in[used:used+n]...)
	used += n
	if len(*i.buf) < i.size {
		return nil, used, nil
	}
	return *i.buf, used, nil
}

// checkHeader checks a header and returns the size of its record.
func checkHeader(h [recordHeader]byte, version uint16) (int, error) {
	size, limit := int(h[3])<<8|int(h[4]), maxCiphertext
	if version != tls.VersionTLS13 {
		limit = maxCiphertext2
	}
	switch {
	case h[1] != 3 || h[2] != 3:
		return 0, alertProtocolVersion
	case size > limit:
		return 0, alertRecordOverflow
	}
	return recordHeader + size, nil
}

// drop forgets a record that was returned and lies in the buffer.
func (i *input) drop() {
	if i.buf != nil && len(*i.buf) == i.size {
		i.release()
	}
}

func (i *input) release() {
	if i.buf != nil {
		giveBuffer(i.buf)
	}
	*i = input{}
}
