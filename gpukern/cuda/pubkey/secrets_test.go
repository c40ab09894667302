package pubkey

import (
	"crypto/elliptic"
	"slices"
	"testing"
)

// everything does some operations of each kind.
func (b *bed) everything(t *testing.T) {
	t.Helper()
	const n = 9
	products := make([][32]byte, n)
	b.X25519(products, random32(1, n), random32(2, n))
	for _, c := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		requests := ecdsaRequests(ecdsaKeys(t, b.Engine, c, 2), n)
		b.SignECDSA(requests, nil)
		verifyECDSA(t, requests)
	}
	requests := rsaRequests(rsaKey(t, b.Engine, standardRSA(t, 2048)), 4)
	b.SignRSA(requests, nil)
	verifyRSA(t, requests)
	all := make([]Encapsulation, n)
	key := kemKeys(t, 1)[0]
	for i := range all {
		all[i].Key = key.EncapsulationKey().Bytes()
	}
	b.EncapsulateMLKEM768(all, nil)
	for i, c := range all {
		if shared, err := key.Decapsulate(c.Ciphertext[:]); err != nil || c.Err != nil || [32]byte(shared) != c.Shared {
			t.Errorf("%d: %v, %v", i, err, c.Err)
		}
	}
	opened := decapsulations(t, b.Engine, n)
	b.DecapsulateMLKEM768(opened)
	sameSecrets(t, opened)
	messages := ed25519Requests(t, b.Engine, n)
	b.SignEd25519(messages)
	sameEd25519(t, messages)
	checks := ed25519Checks(t, n)
	b.VerifyEd25519(checks)
	if slices.ContainsFunc(checks, func(c Ed25519Check) bool { return !c.Valid }) {
		t.Errorf("%+v", checks)
	}
}

// used returns the memory of all flights, on the device and on the host.
func (b *bed) used(t *testing.T) map[string][][]byte {
	t.Helper()
	all := map[string][][]byte{}
	for name, p := range b.pipelines {
		for _, f := range p.flights {
			dev := make([]byte, f.Dev.Size)
			if err := b.dev.Download(dev, f.Dev.Ptr); err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], dev, f.Host.Mem)
		}
	}
	return all
}

// TestNoSecretStays: nothing that a call has brought to the device or pinned memory is there after it. Both are filled
// with ones before, so that no kernel can rely on what it finds, and to know what the call has used.
func TestNoSecretStays(t *testing.T) {
	devices(t, 12, 12, func(t *testing.T, b *bed, _ int) {
		b.cfg.Batch = 4
		b.everything(t) // makes the pipelines
		for _, p := range b.pipelines {
			for _, f := range p.flights {
				for i := range f.Host.Mem {
					f.Host.Mem[i] = 0xff
				}
				if err := f.Stream.Fill(f.Dev.Ptr, 0xff, f.Dev.Size); err != nil {
					t.Fatal(err)
				}
				if err := f.Stream.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.everything(t)
		for name, mem := range b.used(t) {
			zeros := 0
			for _, m := range mem {
				for _, v := range m {
					if v != 0 && v != 0xff {
						t.Fatalf("%s: %#x is left", name, v)
					}
					if v == 0 {
						zeros++
					}
				}
			}
			if zeros < 100 {
				t.Errorf("%s: %d bytes were used", name, zeros)
			}
		}
		if s := b.Stats(); s.CPU != 0 || s.Faults != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestKeysAreOverwritten where they lay on the device, before their memory is given back.
func TestKeysAreOverwritten(t *testing.T) {
	devices(t, 1, 1, func(t *testing.T, b *bed, _ int) {
		k, err := b.NewRSAKey(standardRSA(t, 2048))
		if err != nil {
			t.Fatal(err)
		}
		mem := make([]byte, k.dev.buf.Size)
		if err := b.dev.Download(mem, k.dev.buf.Ptr); err != nil || !slices.ContainsFunc(mem, func(v byte) bool { return v != 0 }) {
			t.Fatalf("the key is not there: %v", err)
		}
		if err := k.dev.overwrite(); err != nil {
			t.Fatal(err)
		}
		if err := b.dev.Download(mem, k.dev.buf.Ptr); err != nil || slices.ContainsFunc(mem, func(v byte) bool { return v != 0 }) {
			t.Errorf("%v, %x is left", err, mem)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}
