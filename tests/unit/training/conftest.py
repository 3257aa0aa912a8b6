"""Small stand-ins: images that a linear net can learn, and a data module whose samples are functions of their index."""

from __future__ import annotations

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from goatbench.spec import AugmentationSpec, TrainingSpec

NUM_CLASSES = 4


class MadeUpImages(Dataset):
    """Sample i: label i mod 4, an 8x8 image of noise with one brighter quadrant."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if index >= self.size:
            raise IndexError(index)
        label = index % NUM_CLASSES
        image = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(index))
        row, column = divmod(label, 2)
        image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.0
        return image, torch.tensor(label), torch.tensor(index)


class MadeUpData(lightning.LightningDataModule):
    def __init__(self, size: int = 64, batch_size: int = 16, num_workers: int = 0) -> None:
        super().__init__()
        self.size, self.batch_size, self.num_workers = size, batch_size, num_workers

    def loader(self, size: int, batch_size: int) -> DataLoader:
        return DataLoader(MadeUpImages(size), batch_size=batch_size, num_workers=self.num_workers, generator=torch.Generator())

    def train_dataloader(self) -> DataLoader:
        return self.loader(self.size, self.batch_size)

    def val_dataloader(self) -> DataLoader:
        return self.loader(21, 8)


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, NUM_CLASSES))


@pytest.fixture
def net() -> nn.Module:
    return make_net()


@pytest.fixture
def new_net():
    return make_net


@pytest.fixture
def made_up_data():
    return MadeUpData


@pytest.fixture
def made_up_loader():
    return MadeUpData().loader


@pytest.fixture
def recipe() -> TrainingSpec:
    return TrainingSpec(epochs=3, batch_size=16, default_learning_rate=1e-2)


@pytest.fixture
def augmentation() -> AugmentationSpec:
    return AugmentationSpec(crop_min_scale=1.0)
