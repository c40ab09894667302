// Package testinitial makes Initial packets of QUIC for tests of what reads them (RFC 9001 5). It derives their keys itself, so that
// an error of the reader does not hide in it.
package testinitial

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"
)

// Versions of QUIC (RFC 9000, RFC 9369).
const (
	V1 = 1
	V2 = 0x6b3343cf
)

// ServerName is the name in Hello.
const ServerName = "quic.example.test"

// Hello returns the ClientHello of a client that asks for ServerName.
func Hello(t testing.TB) []byte {
	t.Helper()
	c := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{ServerName: ServerName, NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13}})
	c.SetTransportParameters([]byte{1, 4, 0x80, 0, 0x75, 0x30})
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		switch e := c.NextEvent(); e.Kind {
		case tls.QUICWriteData:
			return slices.Clone(e.Data)
		case tls.QUICNoEvent:
			t.Fatal("no ClientHello")
		}
	}
}

// Crypto returns a CRYPTO frame with the bytes from one place of a ClientHello to another.
func Crypto(hello []byte, from, to int) []byte {
	b := binary.BigEndian.AppendUint16([]byte{6}, 0x4000|uint16(from))
	b = binary.BigEndian.AppendUint16(b, 0x4000|uint16(to-from))
	return append(b, hello[from:to]...)
}

// Seal makes an Initial packet of frames (RFC 9000 17.2.2; RFC 9001 5.3 and 5.4) with a packet number of two bytes.
func Seal(t testing.TB, version uint32, dcid []byte, number uint16, frames []byte) []byte {
	t.Helper()
	salt, label, first := "38762cf7f55934b34d179ae6a4c80cadccbb7f0a", "quic ", byte(0xc1)
	if version == V2 {
		salt, label, first = "0dede3def700a6db819381be6e269dcbf9bd2ed9", "quicv2 ", 0xd1
	}
	raw, err := hex.DecodeString(salt)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := hkdf.Extract(sha256.New, dcid, raw)
	if err != nil {
		t.Fatal(err)
	}
	client := expand(t, secret, "client in", 32)
	payload, err := aes.NewCipher(expand(t, client, label+"key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(payload)
	if err != nil {
		t.Fatal(err)
	}
	header, err := aes.NewCipher(expand(t, client, label+"hp", 16))
	if err != nil {
		t.Fatal(err)
	}
	p := binary.BigEndian.AppendUint32([]byte{first}, version)
	p = append(append(append(p, byte(len(dcid))), dcid...), 0, 0)
	p = binary.BigEndian.AppendUint16(p, 0x4000|uint16(2+len(frames)+16))
	at := len(p)
	p = binary.BigEndian.AppendUint16(p, number)
	nonce := expand(t, client, label+"iv", 12)
	nonce[10] ^= byte(number >> 8)
	nonce[11] ^= byte(number)
	p = append(p, aead.Seal(nil, nonce, frames, p)...)
	var mask [16]byte
	header.Encrypt(mask[:], p[at+4:at+20])
	p[0] ^= mask[0] & 0x0f
	p[at] ^= mask[1]
	p[at+1] ^= mask[2]
	return p
}

// expand is HKDF-Expand-Label without a context (RFC 8446 7.1).
func expand(t testing.TB, secret []byte, label string, n int) []byte {
	info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(6+len(label)))
	info = append(append(info, "tls13 "+label...), 0)
	out, err := hkdf.Expand(sha256.New, secret, string(info), n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
