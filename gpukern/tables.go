package gpukern

import (
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/image"
)

// Image lays t out for the kernels, with the key of the hash; all zeros is DefaultHashKey. It is struct
// gk_tables of gpukern/cuda/tables.h. The parts that belong to t are borrowed from it.
func (t *Tables) Image(key *[40]byte) image.Image {
	var m image.Image
	m.Join(hashImage(key))
	acl4, acl6 := t.ACL.Images()
	lpm4, lpm6 := t.Routes.Images()
	for _, o := range []image.Image{acl4, acl6, lpm4, lpm6, t.Literals.Image()} {
		m.Join(o)
	}
	return m
}

// hashImage is struct gk_hash of gpukern/cuda/hash.cuh: sixteen words for each half byte of the input.
func hashImage(key *[40]byte) image.Image {
	if *key == [40]byte{} {
		key = &DefaultHashKey
	}
	var h hasher
	h.init(key)
	var half []uint32
	for i := range h.row {
		for v := range 16 {
			half = append(half, h.row[i][v<<4])
		}
		half = append(half, h.row[i][:16]...)
	}
	var m image.Image
	m.Pointer(image.Bytes(half))
	return m
}

// State lays a flow table out for the kernels, nil for none: struct gk_state of gpukern/cuda/state.h. Unlike
// tables, its parts are written by the device; once they are copied back into Part.Data, the methods of
// flow.Table report what the device found.
func State(t *flow.Table) image.Image {
	var m image.Image
	m.Join(t.Image())
	return m
}
