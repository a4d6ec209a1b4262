package metal

// MaxBlockBytes is how many bytes Encoder.SetBytes takes.
const MaxBlockBytes = 4096

// MaxBuffers is how many buffers a kernel can bind; indices run from 0.
const MaxBuffers = 31
