package pubkey

import (
	"crypto/elliptic"
	"math/big"

	"github.com/millrace/millrace/gpukern/cuda"
)

// curve is P-256 or P-384 as the kernels of ecdsa.cuh have it.
type curve struct {
	name    string
	params  *elliptic.CurveParams
	words   int // N of a number
	windows int // of the generator's table
	task    *task
}

// Windows of signed digits, in bits: EC_BITS and EC_KEY_BITS.
const (
	generatorBits = 6
	keyBits       = 4
)

var (
	p256 = newCurve("p256", elliptic.P256(), 43)
	p384 = newCurve("p384", elliptic.P384(), 64)
)

func newCurve(name string, c elliptic.Curve, windows int) *curve {
	k := &curve{name: name, params: c.Params(), words: c.Params().BitSize / 32, windows: windows}
	k.task = ecdsaTask(k)
	return k
}

// size returns the bytes of a number.
func (c *curve) size() int { return 4 * c.words }

// affine is a point other than infinity.
type affine struct{ x, y *big.Int }

// add returns the sum of two points that are not inverses. It is for public points: it takes the time that it takes.
func (c *curve) add(a, b affine) affine {
	p := c.params.P
	var slope *big.Int
	if a.x.Cmp(b.x) == 0 { // the tangent: (3x^2 - 3) / 2y
		slope = new(big.Int).Mul(a.x, a.x)
		slope.Sub(slope, big.NewInt(1))
		slope.Mul(slope, big.NewInt(3))
		slope.Mul(slope, new(big.Int).ModInverse(new(big.Int).Lsh(a.y, 1), p))
	} else {
		slope = new(big.Int).Sub(b.x, a.x)
		slope.ModInverse(slope.Mod(slope, p), p)
		slope.Mul(slope, new(big.Int).Sub(b.y, a.y))
	}
	slope.Mod(slope, p)
	x := new(big.Int).Mul(slope, slope)
	x.Sub(x, a.x).Sub(x, b.x).Mod(x, p)
	y := new(big.Int).Sub(a.x, x)
	y.Mul(y, slope).Sub(y, a.y).Mod(y, p)
	return affine{x, y}
}

// table returns the table of a point: of each window the odd multiples of 2^(bits*window) times it.
func (c *curve) table(at affine, bits, windows int) []byte {
	m := montgomery{c.params.P, c.words}
	entries := 1 << (bits - 1)
	out := make([]byte, 0, windows*entries*2*c.size())
	for range windows {
		twice := c.add(at, at)
		for multiple := at; ; multiple = c.add(multiple, twice) {
			to := out[len(out) : len(out)+2*c.size()]
			putWords(to[:c.size()], m.form(multiple.x))
			putWords(to[c.size():], m.form(multiple.y))
			if out = out[:len(out)+len(to)]; len(out)%(entries*len(to)) == 0 {
				break
			}
		}
		for range bits {
			at = c.add(at, at)
		}
	}
	return out
}

// generator returns the table of the generator on the device.
func (e *Engine) generator(c *curve) (cuda.Ptr, error) {
	return e.table(c.name, func() []byte { return c.table(affine{c.params.Gx, c.params.Gy}, generatorBits, c.windows) })
}

// table returns a table on the device, made at its first use.
func (e *Engine) table(name string, make func() []byte) (cuda.Ptr, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.tables[name]; b != nil {
		return b.Ptr, nil
	}
	b, err := upload(e.cfg.Device, make())
	if err != nil {
		return 0, err
	}
	e.tables[name] = b
	return b.Ptr, nil
}
