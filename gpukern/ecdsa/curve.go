package ecdsa

import (
	"crypto/elliptic"
	"sync"
)

// Curve is one of the two curves, with the table of its generator. It is read only, and safe for concurrent use.
type Curve struct {
	params *elliptic.CurveParams
	size   int // of a number, in bytes
	p, n   *field
	zero   element
	// The generator's multiples: read whole, window by window.
	generator *table
}

// P256 returns NIST's P-256. The first call computes its table.
var P256 = sync.OnceValue(func() *Curve { return newCurve(elliptic.P256().Params(), 5, p256) })

// P384 returns NIST's P-384. The first call computes its table.
var P384 = sync.OnceValue(func() *Curve { return newCurve(elliptic.P384().Params(), 8, p384) })

func newCurve(params *elliptic.CurveParams, digits int, weak weakReduction) *Curve {
	c := &Curve{
		params: params,
		size:   params.BitSize / 8,
		p:      newField(params.P, digits, weak),
		n:      newField(params.N, digits, general),
		zero:   alignedRows(digits),
	}
	c.generator = c.newTable(params.Gx, params.Gy, generatorBits)
	return c
}

// Size returns the length of a number in bytes.
func (c *Curve) Size() int { return c.size }
