package ebpf

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Entry is an entry of a map in JSON, by the BTF types of the map.
type Entry struct {
	Key   json.RawMessage `json:"key"`
	Value json.RawMessage `json:"value"` // of a map per CPU: a list; null: the kernel does not show it
}

// Condition selects the keys of which an entry is written.
type Condition uint8

// The conditions.
const (
	Always  Condition = iota
	Missing           // only where the key has no entry yet
	Existing
)

// DumpMap calls each for every entry of a map: "OBJECT/MAP", "id:N" or the path of a pin. Entries that are added or removed
// meanwhile may be left out.
func (s *Store) DumpMap(ref string, each func(Entry) error) error {
	t, err := s.openMap(ref)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.KeySize() == 0 {
		return fmt.Errorf("%w: map %s of type %v has no keys", ErrUsage, ref, t.Type())
	}
	var key []byte
	for n := uint32(0); ; n++ {
		next, err := t.nextKey(key)
		if next == nil || err != nil {
			return err
		}
		if n >= t.MaxEntries() { // behind a key that was deleted meanwhile comes the first again
			return fmt.Errorf("map %s: %w: it changes faster than it is read", ref, ebpf.ErrIterationAborted)
		}
		key = next
		e, err := t.entry(key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return err
		}
	}
}

// nextKey returns the key behind key; nil: there is none.
func (t *typedMap) nextKey(key []byte) ([]byte, error) {
	var k any
	if key != nil {
		k = key
	}
	next, err := t.NextKeyBytes(k)
	if err != nil {
		return nil, fmt.Errorf("map %s of type %v: %w", t.name, t.Type(), err)
	}
	return next, nil
}

// entry reads the entry of a key.
func (t *typedMap) entry(key []byte) (e Entry, err error) {
	if e.Key, err = json.Marshal(decode(t.key, key)); err != nil {
		return e, err
	}
	b, err := t.LookupBytes(key)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM): // XSKMAP and others that hold no bytes
		e.Value = json.RawMessage("null")
		return e, nil
	case err != nil:
		return e, err
	case b == nil:
		return e, ebpf.ErrKeyNotExist
	}
	e.Value, err = json.Marshal(t.decodeValue(b))
	return e, err
}

// decodeValue decodes a value, or the list of the CPUs' values.
func (t *typedMap) decodeValue(b []byte) any {
	size := int(t.ValueSize())
	if t.cpus == 0 {
		return decode(t.value, b)
	}
	list := make([]any, t.cpus)
	for i := range list {
		list[i] = decode(t.value, b[i*t.valueSize:][:size])
	}
	return list
}

// UpdateMap writes an entry. Where it exists, members of the value that are not named keep their values. A map per CPU takes
// a list of a value for each, or one value for all.
func (s *Store) UpdateMap(ref string, e Entry, when Condition) error {
	t, err := s.openMap(ref)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.update(e, when)
}

// UpdateMapAll writes entries as UpdateMap does. It stops at the first error, and returns how many were written.
func (s *Store) UpdateMapAll(ref string, list []Entry, when Condition) (int, error) {
	t, err := s.openMap(ref)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	for i, e := range list {
		if err := t.update(e, when); err != nil {
			return i, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return len(list), nil
}

func (t *typedMap) update(e Entry, when Condition) error {
	key, err := t.parseKey(e.Key)
	if err != nil {
		return err
	}
	v, err := parseJSON(e.Value)
	if err != nil {
		return err
	}
	value, err := t.parseValue(v, key)
	if err != nil {
		return err
	}
	flags := [...]ebpf.MapUpdateFlags{ebpf.UpdateAny, ebpf.UpdateNoExist, ebpf.UpdateExist}[when]
	if err := t.put(key, value, flags); err != nil {
		return t.explain(err)
	}
	return nil
}

// put writes bytes. The library takes a value for each CPU as a list of slices.
func (t *typedMap) put(key, value []byte, flags ebpf.MapUpdateFlags) error {
	if t.cpus == 0 {
		return t.Update(key, value, flags)
	}
	list := make([][]byte, t.cpus)
	for i := range list {
		list[i] = value[i*t.valueSize:][:t.ValueSize()]
	}
	return t.Update(key, list, flags)
}

func (t *typedMap) parseKey(text json.RawMessage) ([]byte, error) {
	v, err := parseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	key := make([]byte, t.KeySize())
	return key, encode(t.key, v, key, "key")
}

// parseValue encodes a value upon what the map has, so that a part of a struct can be written.
func (t *typedMap) parseValue(v any, key []byte) ([]byte, error) {
	old, _ := t.LookupBytes(key)
	if t.cpus == 0 {
		value := make([]byte, t.ValueSize())
		copy(value, old)
		return value, encode(t.value, v, value, "value")
	}
	list, ok := v.([]any)
	value := make([]byte, t.cpus*t.valueSize)
	copy(value, old)
	if ok && len(list) != t.cpus {
		return nil, mismatch("value", v, fmt.Sprintf("a list of %d, one for each CPU,", t.cpus))
	}
	for i := range t.cpus {
		one, at := v, "value"
		if ok {
			one, at = list[i], fmt.Sprintf("value[%d]", i)
		}
		if err := encode(t.value, one, value[i*t.valueSize:][:t.ValueSize()], at); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// DeleteKey removes the entry of a key.
func (s *Store) DeleteKey(ref string, key json.RawMessage) error {
	t, err := s.openMap(ref)
	if err != nil {
		return err
	}
	defer t.Close()
	k, err := t.parseKey(key)
	if err != nil {
		return err
	}
	if err := t.Delete(k); err != nil {
		return t.explain(err)
	}
	return nil
}

// explain puts the kernel's few error codes into words.
func (t *typedMap) explain(err error) error {
	why := ""
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		why, err = "it has no entry of this key", ErrNotFound
	case errors.Is(err, ebpf.ErrKeyExist):
		why, err = "it has an entry of this key", ErrExists
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOSPC):
		why = fmt.Sprintf("it is full or the key lies beyond its %d entries", t.MaxEntries())
	case errors.Is(err, unix.EPERM):
		why = "it is frozen or read-only"
	case errors.Is(err, unix.EINVAL):
		why = fmt.Sprintf("a map of type %v does not allow it", t.Type())
	}
	if why == "" {
		return fmt.Errorf("map %s: %w", t.name, err)
	}
	return fmt.Errorf("map %s: %s: %w", t.name, why, err)
}
