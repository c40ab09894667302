package symmetric

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/digest"
)

// Sizes of what kernels have of a key.
const (
	aeadKeySize = 16 + 15*32 + 32 + 32*16 // struct sy_key
	hmacKeySize = 2 * 32                  // struct sy_hmac_key
	imageSize   = 16 + 15*16 + 16 + 32    // struct sy_image: the beginning of aead.Image
)

// keyTable has keys on the device, each at a place of its own.
type keyTable[K comparable] struct {
	d      *cuda.Device
	size   int // of a key on the device
	most   int
	dev    *cuda.Buffer
	places map[K]uint32
	next   int // place
}

func newKeyTable[K comparable](d *cuda.Device, size, most int) (*keyTable[K], error) {
	dev, err := d.Alloc(size * most)
	if err != nil {
		return nil, err
	}
	return &keyTable[K]{d: d, size: size, most: most, dev: dev, places: map[K]uint32{}}, nil
}

// missing gives places to those of keys that have none and returns them. Where the table is full, all others lose
// theirs. Keys that do not fit have none.
func (t *keyTable[K]) missing(keys []K, want func(k K) bool) (added []K) {
	for again := true; ; again = false {
		full := false
		for _, k := range keys {
			if t.has(k) || !want(k) {
				continue
			}
			if full = t.next == t.most; full {
				break
			}
			t.places[k] = uint32(t.next)
			t.next++
			added = append(added, k)
		}
		if !full || !again {
			return added
		}
		clear(t.places)
		t.next, added = 0, added[:0]
	}
}

func (t *keyTable[K]) has(k K) bool {
	_, has := t.places[k]
	return has
}

// forget takes keys out of the table. Their places stay empty until the table is full.
func (t *keyTable[K]) forget(keys []K) error {
	if t == nil || t.d.Lost() != nil {
		return nil
	}
	s, err := t.d.NewStream(cuda.Patient)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		if at, has := t.places[k]; has {
			errs = append(errs, s.Fill(t.dev.Ptr+cuda.Ptr(int(at)*t.size), 0, t.size))
			delete(t.places, k)
		}
	}
	return errors.Join(append(errs, s.Wait(), s.Close())...)
}

// close overwrites the keys and returns their memory. The memory of a device that is lost ends with its context.
func (t *keyTable[K]) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	if t.d.Lost() == nil {
		if s, err := t.d.NewStream(cuda.Patient); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, s.Fill(t.dev.Ptr, 0, t.dev.Size), s.Wait(), s.Close())
		}
	}
	return errors.Join(append(errs, t.dev.Close())...)
}

// Forget overwrites what the device has of keys, which the caller clears besides. No call with them may be under way.
func (e *Engine) Forget(keys ...*aead.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.aeadKeys.forget(keys)
}

// ForgetHMAC is Forget for keys of HMAC-SHA-256.
func (e *Engine) ForgetHMAC(keys ...*digest.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hmacKeys.forget(keys)
}

// expansion is struct sy_expansion.
type expansion struct {
	images, keys, places cuda.Ptr
	n, _                 uint32
}

// loadKeys brings keys to the device that are not there.
func (e *Engine) loadKeys(d *cuda.Device, keys []*aead.Key) (err error) {
	if e.aeadKeys == nil {
		if e.aeadKeys, err = newKeyTable[*aead.Key](d, aeadKeySize, e.cfg.Keys); err != nil {
			return err
		}
	}
	t := e.aeadKeys
	added := t.missing(keys, func(k *aead.Key) bool { return k != nil && kernelOf(k.Algorithm()) != nil })
	if len(added) == 0 {
		return nil
	}
	places := len(added) * imageSize
	return e.withKeys(d, places+8*len(added), func(mem []byte) {
		for i, k := range added {
			copy(mem[i*imageSize:][:imageSize], unsafe.Slice((*byte)(unsafe.Pointer(k.Image())), imageSize))
			binary.LittleEndian.PutUint64(mem[places+8*i:], uint64(t.places[k]))
		}
	}, func(s *cuda.Stream, from cuda.Ptr) error {
		k, err := d.Kernel("sy_expand")
		if err != nil {
			return err
		}
		return cuda.Launch(s, k, cuda.Grid{Blocks: len(added), Threads: 32}, &expansion{
			images: from, keys: t.dev.Ptr, places: from + cuda.Ptr(places), n: uint32(len(added)),
		})
	})
}

// loadHMACKeys is loadKeys for HMAC.
func (e *Engine) loadHMACKeys(d *cuda.Device, keys []*digest.Key) (err error) {
	if e.hmacKeys == nil {
		if e.hmacKeys, err = newKeyTable[*digest.Key](d, hmacKeySize, e.cfg.Keys); err != nil {
			return err
		}
	}
	t := e.hmacKeys
	added := t.missing(keys, func(k *digest.Key) bool { return k != nil })
	if len(added) == 0 {
		return nil
	}
	return e.withKeys(d, len(added)*hmacKeySize, func(mem []byte) {
		for i, k := range added {
			inner, outer := k.States()
			for j := range inner {
				binary.LittleEndian.PutUint32(mem[i*hmacKeySize+4*j:], inner[j])
				binary.LittleEndian.PutUint32(mem[i*hmacKeySize+32+4*j:], outer[j])
			}
			clear(inner[:])
			clear(outer[:])
		}
	}, func(s *cuda.Stream, from cuda.Ptr) error {
		var errs []error
		for i, k := range added {
			errs = append(errs, s.CopyWithin(t.dev.Ptr+cuda.Ptr(int(t.places[k])*hmacKeySize), from+cuda.Ptr(i*hmacKeySize), hmacKeySize))
		}
		return errors.Join(errs...)
	})
}

// withKeys copies what fill writes to memory of the device for use, and overwrites both.
func (e *Engine) withKeys(d *cuda.Device, size int, fill func(mem []byte), use func(s *cuda.Stream, at cuda.Ptr) error) (err error) {
	host, err := d.AllocHost(size)
	if err != nil {
		return err
	}
	defer func() {
		clear(host.Mem)
		err = errors.Join(err, host.Close())
	}()
	dev, err := d.Alloc(size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	s, err := d.NewStream(cuda.Patient)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fill(host.Mem)
	if err := s.CopyIn(dev.Ptr, host, 0, size); err != nil {
		return err
	}
	err = use(s, dev.Ptr)
	return errors.Join(err, s.Fill(dev.Ptr, 0, size), s.Wait())
}
