package quic_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"testing"
)

// The layout of a 1-RTT packet of 1452 bytes with one STREAM frame (RFC 9000 17.3.1, 19.8; RFC 9001 5.3, 5.4).
const (
	floorPacket = 1452
	floorHeader = 1 + 4 + 2     // flags, a client's connection ID of quic-go, packet number
	floorFrame  = 1 + 2 + 4 + 2 // type, stream ID, offset, length
	floorTag    = 16            // of AES-128-GCM
	floorData   = floorPacket - floorHeader - floorFrame - floorTag
)

// floor does to packets what no QUIC can avoid: it copies data, writes and reads the headers, encrypts, decrypts and
// protects the packet number. No acknowledgments, no recovery, no flow control, no locks.
type floor struct {
	aead   cipher.AEAD
	hp     cipher.Block
	packet [14 * floorPacket]byte // a train
	mask   [16]byte
	nonce  [12]byte
}

func newFloor() *floor {
	key, _ := aes.NewCipher(make([]byte, 16))
	f := &floor{}
	f.aead, _ = cipher.NewGCM(key)
	f.hp, _ = aes.NewCipher(bytes.Repeat([]byte{1}, 16))
	return f
}

func (f *floor) at(i int) []byte { return f.packet[i%14*floorPacket:][:floorPacket] }

// seal writes packet i with data.
func (f *floor) seal(i int, data []byte) {
	b := f.at(i)
	b[0] = 0x41
	binary.BigEndian.PutUint16(b[floorHeader-2:], uint16(i))
	frame := b[floorHeader:]
	frame[0] = 0x0e
	binary.BigEndian.PutUint16(frame[1:], 4|0x4000)
	binary.BigEndian.PutUint32(frame[3:], uint32(i)&(1<<30-1)|1<<31)
	binary.BigEndian.PutUint16(frame[7:], floorData|0x4000)
	copy(frame[floorFrame:], data[:floorData])
	binary.BigEndian.PutUint64(f.nonce[4:], uint64(i))
	f.aead.Seal(frame[:0], f.nonce[:], frame[:floorFrame+floorData], b[:floorHeader])
	f.protect(b)
}

// open reads packet i to data, and reports whether it is intact.
func (f *floor) open(i int, data []byte) bool {
	b := f.at(i)
	f.protect(b)
	n := uint64(i)&^0xffff | uint64(binary.BigEndian.Uint16(b[floorHeader-2:]))
	binary.BigEndian.PutUint64(f.nonce[4:], n)
	frame, err := f.aead.Open(b[floorHeader:floorHeader], f.nonce[:], b[floorHeader:], b[:floorHeader])
	if err != nil || frame[0] != 0x0e {
		return false
	}
	return copy(data, frame[floorFrame:]) == floorData
}

// protect applies header protection, or removes it.
func (f *floor) protect(b []byte) {
	f.hp.Encrypt(f.mask[:], b[floorHeader+2:][:16])
	b[0] ^= f.mask[0] & 0x1f
	b[floorHeader-2] ^= f.mask[1]
	b[floorHeader-1] ^= f.mask[2]
}

func TestFloorCarriesData(t *testing.T) {
	f := newFloor()
	sent, got := bytes.Repeat([]byte("floor"), 1000), make([]byte, floorData)
	for i := range 20 {
		f.seal(i, sent[i:])
		if !f.open(i, got) || !bytes.Equal(got, sent[i:][:floorData]) {
			t.Fatalf("packet %d", i)
		}
	}
}

// BenchmarkFloor is the least that the packets of a download cost both ends, per byte of data, below which no engine
// can come (docs/design/025-http3-cost.md).
func BenchmarkFloor(b *testing.B) {
	f := newFloor()
	data, got := make([]byte, 1<<20), make([]byte, 32<<10)
	b.SetBytes(floorData)
	for i := range b.N {
		f.seal(i, data[i*floorData%(1<<20-floorData):])
		if !f.open(i, got) {
			b.Fatal("a packet does not open")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/floorData, "ns/byte")
}
