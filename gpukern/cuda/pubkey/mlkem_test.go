package pubkey

import (
	"bytes"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"errors"
	"sync"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/offload"
)

// inOrder is randomness by which encapsulation i has seeds[i]: a pass that reads it in order.
type inOrder struct {
	sync.Mutex
	seeds [][32]byte
}

func (r *inOrder) Read(p []byte) (int, error) {
	r.Lock()
	defer r.Unlock()
	n := copy(p, r.seeds[0][:])
	r.seeds = r.seeds[1:]
	return n, nil
}

// kemKeys returns some keys.
func kemKeys(t testing.TB, n int) []*mlkem.DecapsulationKey768 {
	t.Helper()
	all := make([]*mlkem.DecapsulationKey768, n)
	for i := range all {
		k, err := mlkem.GenerateKey768()
		if err != nil {
			t.Fatal(err)
		}
		all[i] = k
	}
	return all
}

// TestEncapsulationIsThatOfTheStandard compares secrets and ciphertexts with crypto/mlkem, for the same randomness. The
// operations are few enough for one goroutine, which reads it in order.
func TestEncapsulationIsThatOfTheStandard(t *testing.T) {
	devices(t, 40, 255, func(t *testing.T, b *bed, n int) {
		keys := kemKeys(t, n)
		all := make([]Encapsulation, n)
		for i := range all {
			all[i].Key = keys[i].EncapsulationKey().Bytes()
		}
		seeds := random32(9, n)
		b.EncapsulateMLKEM768(all, &inOrder{seeds: seeds})
		for i, c := range all {
			shared, ciphertext, err := mlkemtest.Encapsulate768(keys[i].EncapsulationKey(), seeds[i][:])
			if err != nil {
				t.Fatal(err)
			}
			if c.Err != nil || !bytes.Equal(c.Shared[:], shared) || !bytes.Equal(c.Ciphertext[:], ciphertext) {
				t.Fatalf("%d: %v, %x, want %x; the ciphertext is right: %v", i, c.Err, c.Shared, shared, bytes.Equal(c.Ciphertext[:], ciphertext))
			}
		}
		b.onDevice(t, n)
	})
}

// TestEncapsulationsAreOpened has the owner of the key find each secret.
func TestEncapsulationsAreOpened(t *testing.T) {
	devices(t, 10, 100000, func(t *testing.T, b *bed, n int) {
		keys := kemKeys(t, 16)
		all := make([]Encapsulation, n)
		for i := range all {
			all[i].Key = keys[i%len(keys)].EncapsulationKey().Bytes()
		}
		b.EncapsulateMLKEM768(all, nil)
		offload.Parallel(n, leastDone, func(from, to int) {
			for i := from; i < to; i++ {
				shared, err := keys[i%len(keys)].Decapsulate(all[i].Ciphertext[:])
				if err != nil || all[i].Err != nil || !bytes.Equal(shared, all[i].Shared[:]) {
					t.Errorf("%d: %v, %v, %x, want %x", i, err, all[i].Err, all[i].Shared, shared)
					return
				}
			}
		})
		b.onDevice(t, n)
	})
}

// TestKeysThatAreNone are refused, and no others beside them: of another length, and with a coefficient of q.
func TestKeysThatAreNone(t *testing.T) {
	devices(t, 5, 5, func(t *testing.T, b *bed, n int) {
		key := kemKeys(t, 1)[0].EncapsulationKey().Bytes()
		all := make([]Encapsulation, n)
		for i := range all {
			all[i].Key = bytes.Clone(key)
		}
		all[1].Key = key[1:]
		all[2].Key[383], all[2].Key[382] = 0xd0, all[2].Key[382]&0x0f|0x10 // 3329 = 0xd01, the last of a polynomial
		all[3].Key = append(key, 0)
		b.EncapsulateMLKEM768(all, nil)
		for i, c := range all {
			bad := i == 1 || i == 2 || i == 3
			if errors.Is(c.Err, ErrKey) != bad || (c.Shared == [32]byte{}) != bad {
				t.Errorf("%d: %v, %x", i, c.Err, c.Shared)
			}
			if _, err := mlkem.NewEncapsulationKey768(c.Key); (err != nil) != bad {
				t.Errorf("%d: crypto/mlkem says %v", i, err)
			}
		}
	})
}

// decapsulations returns n of right and wrong ciphertexts, by some keys.
func decapsulations(t testing.TB, e *Engine, n int) []Decapsulation {
	t.Helper()
	var keys []*MLKEMKey
	for _, key := range kemKeys(t, 3) {
		k, err := e.NewMLKEMKey(key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		keys = append(keys, k)
	}
	all := make([]Decapsulation, n)
	for i := range all {
		k := keys[i%len(keys)]
		_, ciphertext := k.key.EncapsulationKey().Encapsulate()
		switch i % 8 {
		case 3:
			ciphertext[i%len(ciphertext)] ^= 1 << (i % 7) // wrong
		case 5:
			ciphertext = bytes.Repeat([]byte{byte(i)}, len(ciphertext))
		}
		all[i] = Decapsulation{Key: k, Ciphertext: ciphertext}
	}
	return all
}

// sameSecrets compares with crypto/mlkem.
func sameSecrets(t testing.TB, all []Decapsulation) {
	t.Helper()
	offload.Parallel(len(all), leastDone, func(from, to int) {
		for i, c := range all[from:to] {
			want, err := c.Key.key.Decapsulate(c.Ciphertext)
			if err != nil || c.Err != nil || !bytes.Equal(c.Shared[:], want) {
				t.Errorf("%d: %v, %v, %x, want %x", from+i, c.Err, err, c.Shared, want)
				return
			}
		}
	})
}

func TestDecapsulationIsThatOfTheStandard(t *testing.T) {
	devices(t, 40, 100000, func(t *testing.T, b *bed, n int) {
		all := decapsulations(t, b.Engine, n)
		b.DecapsulateMLKEM768(all)
		sameSecrets(t, all)
		b.onDevice(t, n)
		all[1].Ciphertext = all[1].Ciphertext[1:]
		b.DecapsulateMLKEM768(all[:2])
		if all[1].Err == nil || all[1].Shared != [32]byte{} {
			t.Errorf("a short ciphertext: %v, %x", all[1].Err, all[1].Shared)
		}
		sameSecrets(t, all[:1])
	})
}
