package gpukern

// Image lays t out for the kernels, with the key of the hash; all zeros is DefaultHashKey. It is struct
// gk_tables of gpukern/cuda/tables.h. The parts that belong to t are borrowed from it.
func (t *Tables) Image(key *[40]byte) Image {
	var m Image
	m.join(hashImage(key))
	acl4, acl6 := t.ACL.Images()
	lpm4, lpm6 := t.Routes.Images()
	for _, o := range []Image{acl4, acl6, lpm4, lpm6, Image(t.Literals.Image())} {
		m.join(o)
	}
	return m
}

// hashImage is struct gk_hash of gpukern/cuda/hash.cuh: sixteen words for each half byte of the input.
func hashImage(key *[40]byte) Image {
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
	var m Image
	m.pointer(bytesOf(half))
	return m
}
