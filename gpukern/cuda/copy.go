package cuda

import "unsafe"

// copyIn copies from to the device. from lies outside of the Go heap and stays as it is until the copy
// is done. For the owner.
func (s *Stream) copyIn(to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return s.d.lib.copyIn(to, uintptr(unsafe.Pointer(&from[0])), len(from), s.id)
}

// copyOut copies from the device to memory outside of the Go heap. For the owner.
func (s *Stream) copyOut(to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	return s.d.lib.copyOut(uintptr(unsafe.Pointer(&to[0])), from, len(to), s.id)
}
