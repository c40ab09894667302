package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
)

// Type is the type of a TLV (section 2.2).
type Type uint8

// The registered types. 0xE0 to 0xEF are for applications, 0xF0 to 0xF7 for experiments.
const (
	TypeALPN      Type = 0x01 // the name of the application protocol
	TypeAuthority Type = 0x02 // the host name that the client asked for, of TLS its server_name
	TypeCRC32C    Type = 0x03 // the checksum of the header
	TypeNoop      Type = 0x04 // padding
	TypeUniqueID  Type = 0x05 // of the connection, at most 128 bytes
	TypeSSL       Type = 0x20 // the client's TLS: see TLVs.SSL
	TypeNetNS     Type = 0x30 // the name of a network namespace
)

// The types of the TLVs inside of one of TypeSSL.
const (
	SubtypeVersion            Type = 0x21 // of TLS: "TLSv1.3"
	SubtypeCommonName         Type = 0x22 // of the client's certificate
	SubtypeCipher             Type = 0x23 // "ECDHE-RSA-AES128-GCM-SHA256"
	SubtypeSignatureAlgorithm Type = 0x24 // of the server's certificate: "SHA256"
	SubtypeKeyAlgorithm       Type = 0x25 // of the server's certificate: "RSA2048"
	SubtypeGroup              Type = 0x26 // of the key exchange: "secp256r1"
	SubtypeSignatureScheme    Type = 0x27 // of the handshake: "rsa_pss_rsae_sha256"
	SubtypeCertificate        Type = 0x28 // of the client, in DER
)

const (
	tlvHeader   = 3
	maxUniqueID = 128
	sslFixed    = 1 + 4
	sumSize     = 4
)

// TLVs are type-length-value vectors as they are sent. The zero value has none.
type TLVs []byte

// next splits off the first TLV. ok is false at the end and where the rest is malformed.
func (t TLVs) next() (typ Type, value []byte, rest TLVs, ok bool) {
	if len(t) < tlvHeader {
		return 0, nil, nil, false
	}
	end := tlvHeader + int(binary.BigEndian.Uint16(t[1:]))
	if len(t) < end {
		return 0, nil, nil, false
	}
	return Type(t[0]), t[tlvHeader:end:end], t[end:], true
}

// All ranges over types and values in their order. Values are parts of t.
func (t TLVs) All() iter.Seq2[Type, []byte] {
	return func(yield func(Type, []byte) bool) {
		for {
			typ, value, rest, ok := t.next()
			if !ok || !yield(typ, value) {
				return
			}
			t = rest
		}
	}
}

// Find returns the value of the first TLV of a type.
func (t TLVs) Find(typ Type) (value []byte, ok bool) {
	for is, value := range t.All() {
		if is == typ {
			return value, true
		}
	}
	return nil, false
}

// Append appends a TLV. The error is ErrTooLong for a value over 65535 bytes, or an ID over 128.
func (t TLVs) Append(typ Type, value []byte) (TLVs, error) {
	if len(value) > 0xFFFF || typ == TypeUniqueID && len(value) > maxUniqueID {
		return t, ErrTooLong
	}
	return appendTLV(t, typ, value), nil
}

func appendTLV(dst []byte, typ Type, value []byte) []byte {
	dst = binary.BigEndian.AppendUint16(append(dst, byte(typ)), uint16(len(value)))
	return append(dst, value...)
}

// wellFormed reports whether t is whole TLVs.
func (t TLVs) wellFormed() bool {
	for len(t) > 0 {
		var ok bool
		if _, _, t, ok = t.next(); !ok {
			return false
		}
	}
	return true
}

// check reports whether t is whole TLVs, and those that have a form have it. There is at most one checksum: sumAt is where
// its value begins in t, 0 without one.
func (t TLVs) check() (sumAt int, ok bool) {
	for left := t; len(left) > 0; {
		typ, value, rest, ok := left.next()
		if !ok {
			return 0, false
		}
		switch typ {
		case TypeCRC32C:
			if sumAt != 0 || len(value) != sumSize {
				return 0, false
			}
			sumAt = len(t) - len(rest) - sumSize
		case TypeUniqueID:
			ok = len(value) <= maxUniqueID
		case TypeSSL:
			ok = len(value) >= sslFixed && TLVs(value[sslFixed:]).wellFormed()
		}
		if !ok {
			return 0, false
		}
		left = rest
	}
	return sumAt, true
}

// Bits of SSL.Client.
const (
	ClientSSL         = 0x01 // the client connected over TLS
	ClientCertConn    = 0x02 // it gave a certificate on this connection
	ClientCertSession = 0x04 // it gave one at least once in this session
)

// SSL is the value of TypeSSL (section 2.2.6).
type SSL struct {
	Client uint8  // ClientSSL and others
	Verify uint32 // 0: the client has a certificate, and it was verified
	TLVs   TLVs   // of the types SubtypeVersion and others
}

// SSL returns the first TLV of TypeSSL.
func (t TLVs) SSL() (s SSL, ok bool) {
	value, ok := t.Find(TypeSSL)
	if !ok || len(value) < sslFixed {
		return s, false
	}
	return SSL{Client: value[0], Verify: binary.BigEndian.Uint32(value[1:]), TLVs: value[sslFixed:]}, true
}

// AppendSSL appends a TLV of TypeSSL. The error is ErrTooLong where it is over 65535 bytes.
func (t TLVs) AppendSSL(s SSL) (TLVs, error) {
	size := sslFixed + len(s.TLVs)
	if size > 0xFFFF {
		return t, ErrTooLong
	}
	t = binary.BigEndian.AppendUint16(append(t, byte(TypeSSL)), uint16(size))
	t = binary.BigEndian.AppendUint32(append(t, s.Client), s.Verify)
	return append(t, s.TLVs...), nil
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeroSum    = make([]byte, sumSize)
)

// checksum returns the CRC32c of a header whose checksum field is zero (section 2.2.3).
func checksum(header []byte) uint32 { return crc32.Checksum(header, castagnoli) }

// rightSum reports whether the checksum at an offset of the header is that of the header with zeros in its place.
func rightSum(header []byte, at int) bool {
	sum := crc32.Checksum(header[:at], castagnoli)
	sum = crc32.Update(sum, castagnoli, zeroSum)
	sum = crc32.Update(sum, castagnoli, header[at+sumSize:])
	return sum == binary.BigEndian.Uint32(header[at:])
}
