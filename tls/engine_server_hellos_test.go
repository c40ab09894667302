package tls

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"maps"
	mathrand "math/rand/v2"
	"slices"
)

// helloMaker makes ClientHellos of any choices, some of which are wrong.
type helloMaker struct {
	*mathrand.Rand
	wrong int // one in so many things is
}

func (m *helloMaker) some(all ...uint16) (list []uint16) {
	for _, v := range all {
		if m.IntN(4) > 0 {
			list = append(list, v)
		}
	}
	m.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (m *helloMaker) mostly() bool  { return m.IntN(32) > 0 }
func (m *helloMaker) seldom() bool  { return m.IntN(8) == 0 }
func (m *helloMaker) isWrong() bool { return m.IntN(m.wrong) == 0 }

// vector returns a vector, whose length is wrong at times.
func (m *helloMaker) vector(width int, b []byte) []byte {
	n := len(b)
	if m.isWrong() {
		n += m.IntN(3) - 1
	}
	v := make([]byte, width, width+len(b))
	for i := range width {
		v[width-1-i] = byte(n >> (8 * i))
	}
	return append(v, b...)
}

func (m *helloMaker) list(width int, values []uint16) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	if m.isWrong() {
		b = append(b, 1)
	}
	return m.vector(width, b)
}

func (m *helloMaker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return b
}

// keys of all hellos: to make them takes long, and servers do not compare.
var helloKeys = func() map[uint16][]byte {
	keys := map[uint16][]byte{0x0a0a: {0}}
	for id, curve := range map[tls.CurveID]ecdh.Curve{tls.X25519: ecdh.X25519(), tls.CurveP256: ecdh.P256(), tls.CurveP384: ecdh.P384()} {
		key, err := curve.GenerateKey(rand.Reader)
		if err != nil {
			panic(err)
		}
		keys[uint16(id)] = key.PublicKey().Bytes()
	}
	c := NewClientEngine(&tls.Config{ServerName: "a", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}}, EngineOptions{AnyThread: true})
	defer c.Close()
	// The hello's only key share: of 1184 and 32 bytes.
	at := bytes.Index(c.Pending(), []byte{0x11, 0xec, 0x04, 0xc0})
	keys[uint16(tls.X25519MLKEM768)] = bytes.Clone(c.Pending()[at+4:][:1184+32])
	return keys
}()

// extensions returns extensions in any order.
func (m *helloMaker) extensions() []byte {
	all := map[uint16][]byte{}
	put := func(often bool, typ uint16, content func() []byte) {
		if often {
			all[typ] = content()
		}
	}
	names := []string{"x.", "a b", "", "other.example", "Example.COM", "example.com"}
	groups := m.some(uint16(tls.X25519MLKEM768), uint16(tls.X25519), uint16(tls.CurveP256), uint16(tls.CurveP384), 0x0a0a, 4587)
	put(m.mostly(), 0, func() []byte {
		name := names[min(m.IntN(32), len(names)-1)]
		return m.vector(2, append([]byte{byte(m.IntN(32) / 31)}, m.vector(2, []byte(name))...))
	})
	put(m.seldom(), 5, func() []byte { return append([]byte{1}, append(m.vector(2, nil), m.vector(2, nil)...)...) })
	put(m.mostly(), 10, func() []byte { return m.list(2, groups) })
	put(m.seldom(), 11, func() []byte { return m.vector(1, []byte{0}) })
	put(m.mostly(), 13, func() []byte {
		return m.list(2, m.some(0x0807, 0x0403, 0x0804, 0x0805, 0x0806, 0x0401, 0x0203, 0x0503))
	})
	put(m.IntN(2) == 0, 16, func() []byte {
		var list []byte
		for _, p := range []string{"h2", "http/1.1", "acme-tls/1"} {
			if m.IntN(2) == 0 {
				list = append(list, m.vector(1, []byte(p))...)
			}
		}
		return m.vector(2, list)
	})
	put(m.seldom(), 18, func() []byte { return m.bytes(m.IntN(m.wrong) / (m.wrong - 1)) })
	put(m.seldom(), 23, func() []byte { return m.bytes(m.IntN(m.wrong) / (m.wrong - 1)) })
	put(m.seldom(), 35, func() []byte { return m.bytes(m.IntN(9)) })
	put(m.isWrong(), 42, func() []byte { return nil })
	put(m.mostly(), 43, func() []byte {
		return m.list(1, append(m.some(0x0303, 0x0302, 0x7a7a), m.some(0x0304, 0x0304, 0x0304)...))
	})
	put(m.isWrong(), 44, func() []byte { return m.vector(2, m.bytes(3)) })
	put(m.mostly(), 45, func() []byte { return m.vector(1, []byte{byte(m.IntN(2)), 1}[m.IntN(8)/7:]) })
	put(m.seldom(), 50, func() []byte { return m.list(2, m.some(0x0807, 0x0403, 0x0804)) })
	put(m.mostly(), 51, func() []byte {
		var shares []byte
		for _, g := range groups {
			if key := helloKeys[g]; key != nil && m.mostly() {
				if m.isWrong() {
					key = key[:len(key)-1]
				}
				shares = append(binary.BigEndian.AppendUint16(shares, g), m.vector(2, key)...)
			}
		}
		return m.vector(2, shares)
	})
	put(m.isWrong(), 57, func() []byte { return nil })
	put(m.seldom(), 0xfe0d, func() []byte {
		return slices.Concat([]byte{byte(m.IntN(16) / 15)}, m.bytes(5), m.vector(2, m.bytes(32)), m.vector(2, m.bytes(40)))
	})
	put(m.seldom(), 0xff01, func() []byte { return m.vector(1, m.bytes(m.IntN(m.wrong)/(m.wrong-1))) })
	put(m.seldom(), 0x5a5a, func() []byte { return m.bytes(2) })
	types := slices.Sorted(maps.Keys(all))
	m.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	var b []byte
	for _, typ := range types {
		b = append(binary.BigEndian.AppendUint16(b, typ), m.vector(2, all[typ])...)
		if m.isWrong() {
			b = append(binary.BigEndian.AppendUint16(b, typ), m.vector(2, all[typ])...)
		}
	}
	if m.isWrong() { // pre_shared_key, which is last
		ticket := append(m.vector(2, m.bytes(m.IntN(100))), m.bytes(4)...)
		psk := append(m.vector(2, ticket), m.vector(2, m.vector(1, m.bytes(32)))...)
		b = append(binary.BigEndian.AppendUint16(b, 41), m.vector(2, psk)...)
	}
	return b
}

// record returns a ClientHello in its record.
func (m *helloMaker) record() []byte {
	body := append([]byte{3, 3}, m.bytes(32)...)
	body = append(body, m.vector(1, m.bytes(32*m.IntN(2)))...)
	body = append(body, m.list(2, m.some(0x1301, 0x1302, 0x1303, 0x1301, 0xc02b, 0xcca9, 0x002f, 0x5600, 0x3a3a))...)
	compression := []byte{0}
	if m.isWrong() {
		compression = append(compression, 1)
	}
	body = append(body, m.vector(1, compression)...)
	body = append(body, m.vector(2, m.extensions())...)
	message := append([]byte{1}, m.vector(3, body)...)
	return append([]byte{22, 3, byte(m.IntN(4)), byte(len(message) >> 8), byte(len(message))}, message...)
}
