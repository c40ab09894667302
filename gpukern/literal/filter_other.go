//go:build !amd64 || purego

package literal

func (s *Set) candidates(text []byte, from, end int, masks []uint64) {
	s.candidatesPlain(text, from, end, masks)
}
