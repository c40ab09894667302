package ebpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strconv"

	"github.com/cilium/ebpf/btf"
)

// field is a member of a JSON object, whose order is that of the C struct.
type field struct {
	name  string
	value any
}

type fields []field

// MarshalJSON implements json.Marshaler.
func (f fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// decode returns the JSON form of a value in memory. b has at least the size of the type; bytes whose type says nothing, and
// all bytes without a type, are hexadecimal.
//
//	int, __u32, ...   number; __be16, __be64: of the network's byte order; _Bool: true or false; 128 bits: "0x..."
//	__be32            IPv4 address, which is what most are; __be32[4]: IPv6 address
//	char[]            string where it is printable text that zeroes fill up, else a list of numbers
//	enum              name of the value where it has one, else number
//	struct, union     object; members of anonymous members are the object's own; of a union all
//	array             list
//	pointer           "0x..."
//	float, double     number, or "NaN", "+Inf", "-Inf"
func decode(t btf.Type, b []byte) any {
	network := inNetworkOrder(t)
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		switch {
		case network && t.Size == 4:
			return netip.AddrFrom4([4]byte(b)).String()
		case network && littleEndian:
			return decodeInt(t, swapped(b[:t.Size]))
		}
		return decodeInt(t, b[:t.Size])
	case *btf.Enum:
		return decodeEnum(t, b)
	case *btf.Struct:
		return decodeMembers(t.Members, b, nil)
	case *btf.Union:
		return decodeMembers(t.Members, b, nil)
	case *btf.Array:
		return decodeArray(t, b)
	case *btf.Pointer:
		return "0x" + strconv.FormatUint(word(b[:8]), 16)
	case *btf.Float:
		return decodeFloat(b[:t.Size])
	case *btf.Datasec:
		return decodeSection(t, b)
	case nil:
		return hex.EncodeToString(b)
	default:
		n, err := btf.Sizeof(t)
		if err != nil {
			n = 0
		}
		return hex.EncodeToString(b[:n])
	}
}

// inNetworkOrder reports whether a type is one of the kernel's for numbers in network byte order (include/uapi/linux/types.h), or
// has such a name.
func inNetworkOrder(t btf.Type) bool {
	for {
		switch q := t.(type) {
		case *btf.Typedef:
			if q.Name == "__be16" || q.Name == "__be32" || q.Name == "__be64" {
				return true
			}
			t = q.Type
		case *btf.Const:
			t = q.Type
		case *btf.Volatile:
			t = q.Type
		default:
			return false
		}
	}
}

// swapped returns a copy in the other byte order.
func swapped(b []byte) []byte {
	out := slices.Clone(b)
	slices.Reverse(out)
	return out
}

// word reads an unsigned number of up to 8 bytes in the machine's order.
func word(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func decodeInt(t *btf.Int, b []byte) any {
	switch {
	case len(b) == 16:
		n := make([]byte, 16)
		copy(n, b)
		if littleEndian {
			slices.Reverse(n)
		}
		return "0x" + new(big.Int).SetBytes(n).Text(16)
	case t.Encoding == btf.Bool && b[0] <= 1:
		return b[0] == 1
	case t.Encoding == btf.Signed:
		shift := 64 - 8*len(b)
		return int64(word(b)<<shift) >> shift
	}
	return word(b)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func decodeEnum(t *btf.Enum, b []byte) any {
	return enumName(t, word(b[:t.Size]), 64-8*t.Size)
}

// enumName returns the name of a value, or its number where it has none. All but the low 64-shift bits are not of the value.
func enumName(t *btf.Enum, n uint64, shift uint32) any {
	for _, v := range t.Values {
		if v.Value<<shift == n<<shift {
			return v.Name
		}
	}
	if t.Signed {
		return int64(n<<shift) >> shift
	}
	return n
}

func decodeMembers(members []btf.Member, b []byte, f fields) fields {
	if f == nil {
		f = fields{}
	}
	for _, m := range members {
		if m.BitfieldSize != 0 {
			if m.Name != "" {
				f = append(f, field{m.Name, decodeBits(m, b)})
			}
			continue
		}
		at := b[m.Offset.Bytes():]
		if m.Name != "" {
			f = append(f, field{m.Name, decode(m.Type, at)})
			continue
		}
		switch inner := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			f = decodeMembers(inner.Members, at, f)
		case *btf.Union:
			f = decodeMembers(inner.Members, at, f)
		}
	}
	return f
}

// decodeBits reads a bit field: Offset counts bits from the start of the struct, in the machine's order of bits.
func decodeBits(m btf.Member, b []byte) any {
	var n uint64
	for i := range uint32(m.BitfieldSize) {
		bit := uint32(m.Offset) + i
		shift := bit % 8
		if !littleEndian {
			shift = 7 - shift
		}
		v := uint64(b[bit/8]>>shift) & 1
		if littleEndian {
			n |= v << i
		} else {
			n = n<<1 | v
		}
	}
	shift := 64 - uint32(m.BitfieldSize)
	switch t := btf.UnderlyingType(m.Type).(type) {
	case *btf.Int:
		if t.Encoding == btf.Bool && n <= 1 {
			return n == 1
		}
		if t.Encoding == btf.Signed {
			return int64(n<<shift) >> shift
		}
	case *btf.Enum:
		return enumName(t, n, shift)
	}
	return n
}

// isIPv6 reports whether an array is an IPv6 address: of four words in network order.
func isIPv6(t *btf.Array) bool {
	word, ok := btf.UnderlyingType(t.Type).(*btf.Int)
	return ok && word.Size == 4 && t.Nelems == 4 && inNetworkOrder(t.Type)
}

func decodeArray(t *btf.Array, b []byte) any {
	if isIPv6(t) {
		return netip.AddrFrom16([16]byte(b)).String()
	}
	if isText(t) {
		if s, ok := text(b[:t.Nelems]); ok {
			return s
		}
	}
	size, err := btf.Sizeof(t.Type)
	if err != nil {
		return nil
	}
	list := make([]any, 0, t.Nelems)
	for i := range int(t.Nelems) {
		list = append(list, decode(t.Type, b[i*size:]))
	}
	return list
}

// isText reports whether an array is of char.
func isText(t *btf.Array) bool {
	c, ok := btf.UnderlyingType(t.Type).(*btf.Int)
	return ok && c.Size == 1 && (c.Name == "char" || c.Encoding == btf.Char)
}

// text returns a string where b is printable ASCII with nothing but zeroes behind it, so that it encodes to the same bytes.
func text(b []byte) (string, bool) {
	s := bytes.TrimRight(b, "\x00")
	for _, c := range s {
		if c < ' ' || c > '~' {
			return "", false
		}
	}
	return string(s), true
}

func decodeFloat(b []byte) any {
	var f float64
	switch len(b) {
	case 4:
		f = float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	case 8:
		f = math.Float64frombits(binary.NativeEndian.Uint64(b))
	default:
		return hex.EncodeToString(b)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return f
}

// decodeSection reads global variables, which a map of one value holds.
func decodeSection(t *btf.Datasec, b []byte) any {
	f := fields{}
	for _, v := range t.Vars {
		if x, ok := v.Type.(*btf.Var); ok && int(v.Offset)+int(v.Size) <= len(b) {
			f = append(f, field{x.Name, decode(x.Type, b[v.Offset:][:v.Size])})
		}
	}
	return f
}
