/* MIG: a GPU's children, their ids and sizes. */
#include "fake.h"

EXPORT nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    return dev.mig == NONE ? put_uint(dev, "max_mig", out) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out)
{
    DEVICE_CALL(handle);
    unsigned count = 0, max = 0;
    if (dev.mig != NONE || put_uint(dev, "max_mig", &max) != OK || index >= max)
        return INVALID_ARGUMENT;
    put_uint(dev, "mig_count", &count);
    if (index >= count || index >= MAX_MIGS)
        return NOT_FOUND;
    *out = handle_of((Dev){dev.gpu, (int)index});
    return OK;
}

EXPORT nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **out)
{
    DEVICE_CALL(handle);
    *out = handle_of((Dev){dev.gpu, NONE});
    return dev.mig == NONE ? INVALID_ARGUMENT : OK;
}

EXPORT nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    *out = dev.mig != NONE;
    return OK;
}

EXPORT nvmlDeviceGetGpuInstanceId(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    return dev.mig == NONE ? NOT_SUPPORTED : put_uint(dev, "gpu_instance_id", out);
}

EXPORT nvmlDeviceGetComputeInstanceId(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    return dev.mig == NONE ? NOT_SUPPORTED : put_uint(dev, "compute_instance_id", out);
}

EXPORT nvmlDeviceGetAttributes_v2(void *handle, Attributes *out)
{
    DEVICE_CALL(handle);
    u64 bytes;
    if (dev.mig == NONE)
        return NOT_SUPPORTED;
    *out = (Attributes){.copy_engines = 1, .decoders = 1};
    put_uint(dev, "slices", &out->gpu_slices);
    put_uint(dev, "slices", &out->compute_slices);
    int rc = put_u64(dev, "memory_total", &bytes);
    out->memory_mib = rc == OK ? bytes >> 20 : 0;
    return rc ? rc : put_uint(dev, "sms", &out->sms);
}
