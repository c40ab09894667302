package tcp

import "testing"

func TestSipHashHasTheVectorOfItsPaper(t *testing.T) { // Appendix A: key 00..0f, message 00..0e
	s := sipKey{0x0706050403020100, 0x0f0e0d0c0b0a0908}.start()
	s.word(0x0706050403020100)
	if got := s.sum(15, 0x000e0d0c0b0a0908); got != 0xa129ca6149be45e5 {
		t.Errorf("%#x", got)
	}
}
