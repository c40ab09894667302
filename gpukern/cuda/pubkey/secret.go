package pubkey

import (
	"errors"

	"github.com/millrace/millrace/gpukern/cuda"
)

// secret is a private key on the device.
type secret struct {
	d   *cuda.Device
	buf *cuda.Buffer
}

// upload copies public data to the device.
func upload(d *cuda.Device, data []byte) (*cuda.Buffer, error) {
	return copyTo(d, data)
}

// copyTo allocates memory on the device and copies data there. The copy in pinned memory is overwritten.
func copyTo(d *cuda.Device, data []byte) (buf *cuda.Buffer, err error) {
	block, err := d.AllocHost(len(data))
	if err != nil {
		return nil, err
	}
	defer func() {
		clear(block.Mem)
		err = errors.Join(err, block.Close())
	}()
	if buf, err = d.Alloc(len(data)); err != nil {
		return nil, err
	}
	copy(block.Mem, data)
	s, err := d.NewStream(cuda.Patient)
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	err = errors.Join(s.CopyIn(buf.Ptr, block, 0, len(data)), s.Wait(), s.Close())
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	return buf, nil
}

// newSecret brings a key to the device. A device that fails at that is lost to the engine, and the key is the CPU's.
func newSecret(e *Engine, d *cuda.Device, data []byte) (*secret, error) {
	buf, err := copyTo(d, data)
	if err != nil {
		e.device.Lose(err)
		return nil, nil
	}
	return &secret{d: d, buf: buf}, nil
}

// close overwrites the key and returns its memory. The memory of a device that is lost ends with its context.
func (s *secret) close() error {
	if s == nil || s.buf == nil {
		return nil
	}
	err := s.overwrite()
	buf := s.buf
	s.buf = nil
	return errors.Join(err, buf.Close())
}

// overwrite overwrites the key.
func (s *secret) overwrite() error {
	if s.d.Lost() != nil {
		return nil
	}
	stream, err := s.d.NewStream(cuda.Patient)
	if err != nil {
		return err
	}
	return errors.Join(stream.Fill(s.buf.Ptr, 0, s.buf.Size), stream.Wait(), stream.Close())
}
