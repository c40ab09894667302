package kernbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/gpukern/literal"
)

// WriteLiterals writes patterns, and texts with the number of matches in all of them, as
// bench/peers/hyperscan.c reads them.
func WriteLiterals(patternFile, textFile string, patterns []literal.Pattern, texts [][]byte, matches uint64) error {
	var p []byte
	for _, one := range patterns {
		var noCase byte
		if one.NoCase {
			noCase = 1
		}
		p = binary.LittleEndian.AppendUint32(p, one.Rule)
		p = append(append(p, noCase, byte(len(one.Bytes))), one.Bytes...)
	}
	t := binary.LittleEndian.AppendUint64(nil, matches)
	for _, one := range texts {
		t = append(binary.LittleEndian.AppendUint32(t, uint32(len(one))), one...)
	}
	return errors.Join(os.WriteFile(patternFile, p, 0o666), os.WriteFile(textFile, t, 0o666))
}

// ReadLiterals reads what WriteLiterals wrote.
func ReadLiterals(patternFile, textFile string) (patterns []literal.Pattern, texts [][]byte, matches uint64, err error) {
	p, err1 := os.ReadFile(patternFile)
	t, err2 := os.ReadFile(textFile)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, 0, err
	}
	for len(p) > 0 {
		if len(p) < 6 || len(p) < 6+int(p[5]) {
			return nil, nil, 0, fmt.Errorf("%s ends in a pattern", patternFile)
		}
		n := 6 + int(p[5])
		patterns = append(patterns, literal.Pattern{Rule: binary.LittleEndian.Uint32(p), NoCase: p[4] != 0, Bytes: p[6:n]})
		p = p[n:]
	}
	if len(t) < 8 {
		return nil, nil, 0, fmt.Errorf("%s ends in its head", textFile)
	}
	for matches, t = binary.LittleEndian.Uint64(t), t[8:]; len(t) > 0; {
		if len(t) < 4 || len(t)-4 < int(binary.LittleEndian.Uint32(t)) {
			return nil, nil, 0, fmt.Errorf("%s ends in a text", textFile)
		}
		n := 4 + int(binary.LittleEndian.Uint32(t))
		texts = append(texts, t[4:n])
		t = t[n:]
	}
	return patterns, texts, matches, nil
}
