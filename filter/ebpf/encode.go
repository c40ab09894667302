package ebpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// ErrValue reports that a JSON value does not fit the type of a map.
var ErrValue = errors.New("the value does not fit the type")

// parseJSON reads one JSON value, with its numbers as they are written.
func parseJSON(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w: JSON: %w", ErrValue, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more follows the JSON value", ErrValue)
	}
	return v, nil
}

// encode writes the JSON form of a value, as decode returns it, into b, which has the type's size. Members of a struct that
// are not named keep what b holds: zero for a new entry. at is the path of the value, for errors.
func encode(t btf.Type, v any, b []byte, at string) error {
	network := inNetworkOrder(t)
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		if text, ok := v.(string); ok && network && t.Size == 4 && strings.Contains(text, ".") {
			return encodeAddr(text, netip.Addr.Is4, b[:4], at)
		}
		err := encodeInt(t, v, b[:t.Size], at)
		if network && littleEndian && err == nil {
			slices.Reverse(b[:t.Size])
		}
		return err
	case *btf.Enum:
		n, err := enumValue(t, v, int(t.Size)*8, at)
		putWord(b[:t.Size], n)
		return err
	case *btf.Struct:
		return encodeStruct(t.Members, v, b, at)
	case *btf.Union:
		return encodeUnion(t, v, b, at)
	case *btf.Array:
		return encodeArray(t, v, b, at)
	case *btf.Pointer:
		n, err := integer(v, false, 64, at)
		putWord(b[:8], n)
		return err
	case *btf.Float:
		return encodeFloat(v, b[:t.Size], at)
	case *btf.Datasec:
		return encodeSection(t, v, b, at)
	case nil:
		return encodeBytes(v, b, at)
	default:
		n, err := btf.Sizeof(t)
		if err != nil {
			return err
		}
		return encodeBytes(v, b[:n], at)
	}
}

// encodeAddr writes an IP address of the family that is.
func encodeAddr(text string, is func(netip.Addr) bool, b []byte, at string) error {
	a, err := netip.ParseAddr(text)
	if err != nil || !is(a) || a.Zone() != "" {
		return mismatch(at, text, map[int]string{4: "an IPv4 address or a number", 16: "an IPv6 address or a list of 4"}[len(b)])
	}
	copy(b, a.AsSlice())
	return nil
}

func putWord(b []byte, n uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(n)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(n))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(n))
	default:
		binary.NativeEndian.PutUint64(b, n)
	}
}

func mismatch(at string, v any, want string) error {
	text, _ := json.Marshal(v)
	return fmt.Errorf("%w: %s: %s, and %s is wanted", ErrValue, at, shorten(string(text)), want)
}

func shorten(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}

// bigInteger reads a whole number: a JSON number, or a string in Go's syntax such as "0x1f".
func bigInteger(v any, at string) (*big.Int, error) {
	var s string
	switch v := v.(type) {
	case json.Number:
		s = v.String()
		if strings.ContainsAny(s, ".eE") {
			return nil, mismatch(at, v, "a whole number")
		}
	case string:
		s = v
	default:
		return nil, mismatch(at, v, "a whole number")
	}
	n, ok := new(big.Int).SetString(s, 0)
	if !ok {
		return nil, mismatch(at, v, "a whole number")
	}
	return n, nil
}

// integer reads a number of so many bits, as two's complement.
func integer(v any, signed bool, bits int, at string) (uint64, error) {
	n, err := bigInteger(v, at)
	if err != nil {
		return 0, err
	}
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(bits))
	if signed {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) >= 0 {
		return 0, mismatch(at, v, fmt.Sprintf("a number of %d bits, from %v to %v,", bits, low, high.Sub(high, big.NewInt(1))))
	}
	if n.Sign() < 0 {
		return uint64(n.Int64()), nil
	}
	return n.Uint64(), nil
}

func encodeInt(t *btf.Int, v any, b []byte, at string) error {
	if on, ok := v.(bool); ok && t.Encoding == btf.Bool {
		clear(b)
		b[0] = 0
		if on {
			putWord(b, 1)
		}
		return nil
	}
	if len(b) == 16 {
		return encode128(t, v, b, at)
	}
	n, err := integer(v, t.Encoding == btf.Signed, 8*len(b), at)
	if err == nil {
		putWord(b, n)
	}
	return err
}

func encode128(t *btf.Int, v any, b []byte, at string) error {
	n, err := bigInteger(v, at)
	if err != nil {
		return err
	}
	if n.Sign() < 0 && t.Encoding == btf.Signed {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	if n.Sign() < 0 || n.BitLen() > 128 {
		return mismatch(at, v, "a number of 128 bits")
	}
	n.FillBytes(b)
	if littleEndian {
		slices.Reverse(b)
	}
	return nil
}

// enumValue reads the name of a value, or a number.
func enumValue(t *btf.Enum, v any, bits int, at string) (uint64, error) {
	if name, ok := v.(string); ok {
		for _, e := range t.Values {
			if e.Name == name {
				return e.Value, nil
			}
		}
		if _, numeric := new(big.Int).SetString(name, 0); !numeric {
			return 0, mismatch(at, v, "a value of enum "+t.Name)
		}
	}
	return integer(v, t.Signed, bits, at)
}

// findMember finds a member by name, also inside anonymous members.
func findMember(members []btf.Member, name string) (m btf.Member, ok bool) {
	for _, m := range members {
		if m.Name == name && name != "" {
			return m, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if found, ok := findMember(inner, name); ok {
			found.Offset += m.Offset
			return found, true
		}
	}
	return m, false
}

// encodeStruct writes the members that are named. Two that overlap, in an anonymous union, must agree where they do.
func encodeStruct(members []btf.Member, v any, b []byte, at string) error {
	object, ok := v.(map[string]any)
	if !ok {
		return mismatch(at, v, "an object")
	}
	written := make([]byte, len(b)) // a bit for each that has been written
	for _, name := range sortedKeys(object) {
		m, ok := findMember(members, name)
		if !ok {
			return fmt.Errorf("%w: %s has no member %q", ErrValue, at, name)
		}
		part, mask := make([]byte, len(b)), make([]byte, len(b))
		copy(part, b)
		if err := encodeMember(m, object[name], part, mask, at+"."+name); err != nil {
			return err
		}
		for i := range b {
			if both := written[i] & mask[i]; b[i]&both != part[i]&both {
				return fmt.Errorf("%w: %s.%s overlaps another member and differs", ErrValue, at, name)
			}
			b[i] = b[i]&^mask[i] | part[i]&mask[i]
			written[i] |= mask[i]
		}
	}
	return nil
}

// encodeMember writes a member into b, and which bits are the member's into mask.
func encodeMember(m btf.Member, v any, b, mask []byte, at string) error {
	if m.BitfieldSize != 0 {
		return encodeBits(m, v, b, mask, at)
	}
	size, err := btf.Sizeof(m.Type)
	if err != nil {
		return err
	}
	from := int(m.Offset.Bytes())
	if from+size > len(b) {
		return fmt.Errorf("%w: %s lies beyond its struct", ErrValue, at)
	}
	for i := range size {
		mask[from+i] = 0xff
	}
	return encode(m.Type, v, b[from:from+size], at)
}

// encodeBits is the reverse of decodeBits.
func encodeBits(m btf.Member, v any, b, mask []byte, at string) (err error) {
	var n uint64
	bits := int(m.BitfieldSize)
	switch t := btf.UnderlyingType(m.Type).(type) {
	case *btf.Enum:
		n, err = enumValue(t, v, bits, at)
	case *btf.Int:
		if on, ok := v.(bool); ok && t.Encoding == btf.Bool {
			if on {
				n = 1
			}
			break
		}
		n, err = integer(v, t.Encoding == btf.Signed, bits, at)
	default:
		err = mismatch(at, v, "a bit field")
	}
	if err != nil {
		return err
	}
	for i := range bits {
		bit := int(m.Offset) + i
		shift, from := bit%8, i
		if !littleEndian {
			shift, from = 7-shift, bits-1-i
		}
		one := byte(1) << shift
		mask[bit/8] |= one
		b[bit/8] &^= one
		if n>>from&1 == 1 {
			b[bit/8] |= one
		}
	}
	return nil
}

// encodeUnion writes the members that are named, which must agree where they overlap.
func encodeUnion(t *btf.Union, v any, b []byte, at string) error {
	return encodeStruct(t.Members, v, b[:t.Size], at)
}

func encodeArray(t *btf.Array, v any, b []byte, at string) error {
	if s, ok := v.(string); ok && isText(t) {
		if len(s) > int(t.Nelems) {
			return mismatch(at, v, fmt.Sprintf("at most %d bytes", t.Nelems))
		}
		clear(b[:t.Nelems])
		copy(b, s)
		return nil
	}
	if text, ok := v.(string); ok && isIPv6(t) {
		return encodeAddr(text, netip.Addr.Is6, b[:16], at)
	}
	list, ok := v.([]any)
	if !ok || len(list) != int(t.Nelems) {
		return mismatch(at, v, fmt.Sprintf("a list of %d", t.Nelems))
	}
	size, err := btf.Sizeof(t.Type)
	if err != nil {
		return err
	}
	for i, v := range list {
		if err := encode(t.Type, v, b[i*size:(i+1)*size], at+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

func encodeFloat(v any, b []byte, at string) error {
	s, _ := v.(string)
	if n, ok := v.(json.Number); ok {
		s = n.String()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return mismatch(at, v, "a number")
	}
	switch len(b) {
	case 4:
		binary.NativeEndian.PutUint32(b, math.Float32bits(float32(f)))
	case 8:
		binary.NativeEndian.PutUint64(b, math.Float64bits(f))
	default:
		return encodeBytes(v, b, at)
	}
	return nil
}

// encodeSection writes the global variables that are named.
func encodeSection(t *btf.Datasec, v any, b []byte, at string) error {
	object, ok := v.(map[string]any)
	if !ok {
		return mismatch(at, v, "an object of variables")
	}
	for _, name := range sortedKeys(object) {
		i := slices.IndexFunc(t.Vars, func(s btf.VarSecinfo) bool {
			x, ok := s.Type.(*btf.Var)
			return ok && x.Name == name && int(s.Offset)+int(s.Size) <= len(b)
		})
		if i < 0 {
			return fmt.Errorf("%w: %s has no variable %q", ErrValue, at, name)
		}
		s := t.Vars[i]
		if err := encode(s.Type.(*btf.Var).Type, object[name], b[s.Offset:s.Offset+s.Size], at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// encodeBytes reads hexadecimal digits, two for each byte, with or without 0x in front.
func encodeBytes(v any, b []byte, at string) error {
	s, ok := v.(string)
	raw, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	if !ok || err != nil || len(raw) != len(b) {
		return mismatch(at, v, fmt.Sprintf("a string of %d hexadecimal bytes", len(b)))
	}
	copy(b, raw)
	return nil
}
