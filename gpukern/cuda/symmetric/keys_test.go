package symmetric

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/digest"
)

// TestMoreKeysThanPlaces: keys take the places of others, and those of one call that do not fit are the CPU's.
func TestMoreKeysThanPlaces(t *testing.T) {
	b := openFake(t, Config{Keys: 3})
	for i := range 4 { // each brings two new keys: the table is emptied again and again
		x := newTexts(t, byte(20+i), aead.AES128GCM, aead.ChaCha20Poly1305)
		x.random(6, 100)
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
	}
	b.onDevice(t, 48)
	x := newTexts(t, 30, aead.AES128GCM, aead.AES128GCM, aead.AES256GCM, aead.ChaCha20Poly1305, aead.AES128GCM)
	for i := range 5 {
		x.add(i, 64, 8)
	}
	x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
	if s := b.Stats(); s != (Stats{Device: 48 + 6, CPU: 4}) {
		t.Errorf("%+v", s)
	}
}

// bytesOf returns what the device has of a table.
func bytesOf[K comparable](t *testing.T, b *bed, table *keyTable[K]) []byte {
	t.Helper()
	mem := make([]byte, table.dev.Size)
	if err := b.dev.Download(mem, table.dev.Ptr); err != nil {
		t.Fatal(err)
	}
	return mem
}

// TestForgottenKeys are overwritten, and come back at their next use; others stay.
func TestForgottenKeys(t *testing.T) {
	devices(t, 6, 6, func(t *testing.T, b *bed, _ int) {
		b.cfg.Keys = 8
		x := newTexts(t, 13, aead.AES128GCM, aead.ChaCha20Poly1305)
		x.random(6, 100)
		trip := func() { x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) }) }
		trip()
		hashed, _ := sums(digest.HMACSHA256, 1, []int{5, 6})
		b.Sum(&hashed)
		place := int(b.aeadKeys.places[x.b.Keys[0]]) * aeadKeySize
		zero := func(mem []byte) bool { return !slices.ContainsFunc(mem, func(v byte) bool { return v != 0 }) }
		if mem := bytesOf(t, b, b.aeadKeys); zero(mem[place:][:aeadKeySize]) {
			t.Fatal("the key is not there")
		}
		if err := b.Forget(x.b.Keys[0]); err != nil {
			t.Fatal(err)
		}
		if mem := bytesOf(t, b, b.aeadKeys); !zero(mem[place:][:aeadKeySize]) {
			t.Error("a part of the key is left")
		}
		trip()
		trip()
		if b.hmacKeys.places[hashed.Keys[0]] != 0 || zero(bytesOf(t, b, b.hmacKeys)[:hmacKeySize]) {
			t.Fatal("the key of HMAC is not there")
		}
		if err := b.ForgetHMAC(hashed.Keys[0]); err != nil {
			t.Fatal(err)
		}
		if !zero(bytesOf(t, b, b.hmacKeys)[:hmacKeySize]) {
			t.Error("a part of the key of HMAC is left")
		}
		if s := b.Stats(); s.CPU != 0 || s.Device != 6*6+2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestNoTextStays: what a call has copied to the device or to pinned memory is not there after it. Both are filled with
// ones before.
func TestNoTextStays(t *testing.T) {
	devices(t, 12, 12, func(t *testing.T, b *bed, _ int) {
		s := b.flightStream(t)
		for _, f := range b.flights {
			for i := f.texts; i < len(f.Host.Mem); i++ {
				f.Host.Mem[i] = 0xff
			}
			if err := s.Fill(f.Dev.Ptr+cuda.Ptr(f.texts), 0xff, f.Dev.Size-f.texts); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		x := newTexts(t, 14, gpuAlgorithms...)
		x.random(12, 1000)
		x.roundTrip(t, func() int { return b.Seal(&x.b) }, func() int { return b.Open(&x.b) })
		batch, _ := sums(digest.HMACSHA256, 1, []int{100, 200, 300})
		b.Sum(&batch)
		zeros := 0
		for _, f := range b.flights {
			dev := make([]byte, f.Dev.Size)
			if err := b.dev.Download(dev, f.Dev.Ptr); err != nil {
				t.Fatal(err)
			}
			for _, m := range [][]byte{dev[f.texts:], f.Host.Mem[f.texts:]} {
				for _, v := range m {
					if v != 0 && v != 0xff {
						t.Fatalf("%#x is left", v)
					}
					if v == 0 {
						zeros++
					}
				}
			}
		}
		if zeros < 5000 {
			t.Errorf("%d bytes were used", zeros)
		}
		b.onDevice(t, 27)
	})
}
