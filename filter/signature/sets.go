package signature

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// SetOp is the operation of a rule on a set of values.
type SetOp uint8

// The operations. Those up to NotInSet are conditions. AddToSet matches where the value was not in the set, RemoveFromSet where it
// was.
const (
	InSet SetOp = iota
	NotInSet
	AddToSet
	RemoveFromSet
)

// SetType is the type of the values of a set.
type SetType uint8

// The types. Values of SetMD5 and SetSHA256 are digests of 16 and 32 bytes, as the transforms to_md5 and to_sha256 make them.
const (
	SetString SetType = iota
	SetMD5
	SetSHA256
	SetIP
	setTypes
)

var setTypeNames = [setTypes]string{"string", "md5", "sha256", "ip"}

// SetTest asks whether a buffer is in a set that rules share by its name.
type SetTest struct {
	Op     SetOp
	Name   string
	Type   SetType
	Values []string // from the file of the rule, as bytes; nil without one
	MemCap int      // bytes that rules may add; 0 is DefaultSetMemory
}

// DefaultSetMemory is the bound of what rules add to a set, in bytes.
const DefaultSetMemory = 1 << 20

var setOps = map[string]SetOp{"isset": InSet, "isnotset": NotInSet, "set": AddToSet, "unset": RemoveFromSet}

// dataset reads OPERATION, NAME, type TYPE [, load FILE] [, memcap N] [, hashsize N].
func (p *ruleParser) dataset(v string) error {
	a := arguments(v)
	op, ok := setOps[a[0]]
	if !ok || len(a) < 2 || a[1] == "" {
		return errors.New("dataset has isset, isnotset, set or unset, a name, and its type")
	}
	t := &SetTest{Op: op, Name: a[1], Type: setTypes}
	file := ""
	for _, w := range a[2:] {
		name, value, _ := strings.Cut(w, " ")
		value = strings.TrimSpace(value)
		switch name {
		case "type":
			t.Type = setType(value)
			if t.Type == setTypes {
				return unsupported{"dataset of type " + value}
			}
		case "load":
			file = value
		case "memcap":
			n, err := bytesOf(value)
			if err != nil || n <= 0 {
				return fmt.Errorf("memcap %q is not a number of bytes", value)
			}
			t.MemCap = n
		case "hashsize":
		default:
			return unsupported{"dataset " + name}
		}
	}
	if t.Type == setTypes {
		return errors.New("dataset has a type: string, md5, sha256 or ip")
	}
	if p.buffer == Payload {
		return errors.New("dataset stands behind the name of a buffer")
	}
	if file != "" {
		if err := p.loadSet(t, file); err != nil {
			return err
		}
	}
	p.add(Test{Kind: TestSet, Set: t})
	return nil
}

func setType(name string) SetType {
	if name == "ipv4" {
		return SetIP
	}
	for i, n := range setTypeNames {
		if n == name {
			return SetType(i)
		}
	}
	return setTypes
}

// bytesOf reads a number of bytes, perhaps with a unit.
func bytesOf(s string) (int, error) {
	shift := 0
	for unit, n := range map[string]int{"kb": 10, "mb": 20} {
		if rest, ok := strings.CutSuffix(strings.ToLower(s), unit); ok {
			s, shift = strings.TrimSpace(rest), n
		}
	}
	n, err := strconv.ParseUint(s, 10, 31-shift)
	return int(n) << shift, err
}

// loadSet reads the file of a set: a value on a line. Strings are in base64.
func (p *ruleParser) loadSet(t *SetTest, file string) error {
	key := setKey{file, t.Type}
	if values, ok := p.env.sets[key]; ok {
		t.Values = values
		return nil
	}
	if p.env.read == nil {
		return unsupported{"dataset load"}
	}
	text, err := p.env.read(p.rule.File, file)
	if err != nil {
		return fmt.Errorf("dataset %s: %w", t.Name, err)
	}
	if t.Values, err = setValues(t.Type, text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	p.env.sets[key] = t.Values
	return nil
}

// setKey names a file of values that was read.
type setKey struct {
	file string
	kind SetType
}

// setValues reads the lines of a file of values.
func setValues(kind SetType, text string) ([]string, error) {
	values, n := []string{}, 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		value, err := setValue(kind, line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		values = append(values, value)
	}
	return values, nil
}

// setValue reads one value.
func setValue(kind SetType, line string) (string, error) {
	switch kind {
	case SetIP:
		a, err := netip.ParseAddr(line)
		if err != nil {
			return "", fmt.Errorf("%q is not an address", line)
		}
		return string(a.Unmap().AsSlice()), nil
	case SetMD5, SetSHA256:
		b, err := hex.DecodeString(line)
		if err != nil || len(b) != map[SetType]int{SetMD5: 16, SetSHA256: 32}[kind] {
			return "", fmt.Errorf("%q is not a digest of %s", line, setTypeNames[kind])
		}
		return string(b), nil
	}
	b, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return "", fmt.Errorf("%q is not base64", line)
	}
	return string(b), nil
}
